// Tests that a training run with everything on nvme survives a crash. Its I/O is recorded. From any disk image that a crash at any instant
// may leave, a restart must find the state after some step, to the bit and no older than the last reported commit, and must go on from it
// with bitwise the same results.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <iostream>

#include "base/error.h"
#include "models/model.h"
#include "offload/store_format.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/crash_images.h"

namespace spillway::test::program_crash_test {
namespace {

namespace fs = std::filesystem;
using offload::Durability;
using parallel::OptimizerOverlap;
using parallel::Tier;

constexpr i64 kSteps = 3;
constexpr const char* kOverlaps[] = {"none", "backward", "forward", "adaptive"};

RunOptions options(int overlap) {
  RunOptions o;
  o.model.layers = 1;
  o.model.width = o.model.head_dim = 32;
  o.model.heads = o.model.kv_heads = 1;
  o.model.mlp_width = 64;
  o.model.positions = 16;
  o.model.vocabulary = 256;
  o.sequence_length = 8;
  o.steps = kSteps;
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  o.activations = overlap % 2 == 1 ? Tier::nvme : Tier::device;
  o.stripes = overlap >= 2 ? 2 : 1;
  o.adaptive = overlap == 3;
  o.overlap = o.adaptive ? OptimizerOverlap::none : static_cast<OptimizerOverlap>(overlap);
  // With overlap in the backward every step is clipped, so that its optimizer updates are redone. In an adaptive overlap, which defers
  // some groups to the next forward, only the second step is clipped.
  o.gradient_clipping = overlap == 1 ? 1e-3 : 100;
  if (o.adaptive) {
    o.deferred_sixteenths = 8;
    o.clipping = [](i64 step) { return step == 1 ? 1e-3 : 100.0; };
  }
  return o;
}

bool commits(const parallel::List& list) { return std::ranges::count(list, parallel::Op::Commit, &parallel::Instruction::op) > 0; }

std::string record_of(i64 step) { return "step " + std::to_string(step); }

// Runs training with the given I/O engine, in folders that may already contain a state.
class Training {
 public:
  Training(const RunOptions& o, offload::IoEngine& engine, const fs::path& folder, Durability durability, const char* boot = nullptr)
      : o_(o), model_(models::build(o.model, o.dtype)) {
    const parallel::PlanRequest request = plan_request(model_, o);
    plan_ = make_plan(request);
    if (boot) plan_.store.boot_id = boot;
    device_.emplace("device", plan_.total[0]);
    host_.emplace("host", plan_.total[1]);
    resources_ = {&*device_, &*host_, &threads_, &engine, {}, "test", durability};
    for (size_t i = 0; i < request.stripe_weights.size(); ++i) {
      resources_.scratch.push_back({folder / std::to_string(i), request.stripe_weights[i]});
      fs::create_directory(resources_.scratch.back().folder);
    }
  }
  const nn::Sequential& model() const { return model_; }
  const parallel::Plan& plan() const { return plan_; }
  const parallel::Resources& resources() const { return resources_; }

  /// Trains, starting from the state that was found or, if none was, anew, and returns the final state. Calls
  /// at(2 s + 1) when the commit of step s is requested, and at(2 s + 2) when the commit is done.
  std::vector<std::byte> train(const std::function<void(i64)>& at = [](i64) {}) {
    parallel::Rank rank(model_, plan_, resources_);
    i64 step = 0;
    if (rank.state().recovered()) {
      step = std::stol(rank.state().recovered()->substr(5));
    } else {
      rank.load([](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
      at(1);
      rank.state().commit(rank.state().generation(), record_of(0));
      at(2);
    }
    for (; step < o_.steps; ++step) {
      parallel::StepSettings settings = step_settings(o_, step);
      settings.record = [&](const parallel::StepResult&) {
        at(2 * step + 3);
        return record_of(step + 1);
      };
      rank.train_step([&] { return random_batch(o_, step); }, settings);
      // Updates that were deferred to the next step are committed inside that step.
      if (commits(*rank.last_head())) at(2 * step + 2);
      if (commits(*rank.last_tail())) at(2 * step + 4);
    }
    rank.settle();
    at(2 * step + 2);
    return bytes_of(rank.state());
  }

  /// Returns weights and optimizer state as they are stored, and verifies their checksums.
  std::vector<std::byte> bytes_of(parallel::ModelState& state) const {
    std::vector<std::byte> all;
    for (const parallel::Group& g : plan_.layout.groups) {
      state.scan(g.id, [&](parallel::TileRange, std::span<const std::byte> weights, std::span<const std::byte> moments) {
        all.insert(all.end(), weights.begin(), weights.end());
        all.insert(all.end(), moments.begin(), moments.end());
      });
    }
    return all;
  }

 private:
  const RunOptions o_;
  const nn::Sequential model_;
  parallel::Plan plan_;
  ThreadPool threads_{1};
  std::optional<MemoryPool> device_, host_;
  parallel::Resources resources_;
};

// Returns the state after each step of a run without crashes, whose optimizer runs after the backward.
std::vector<std::vector<std::byte>> undisturbed(RunOptions o) {
  o.overlap = OptimizerOverlap::none;
  o.adaptive = false;
  std::vector<std::vector<std::byte>> after;
  for (o.steps = 0; o.steps <= kSteps; ++o.steps) {
    const TemporaryFolder folder{fast_folder()};
    const auto engine = offload::make_io_engine(offload::IoEngineKind::pread).engine;
    after.push_back(Training(o, *engine, folder.path(), Durability::checkpoint).train());
  }
  return after;
}

class ProgramCrash : public testing::Test {
 protected:
  struct Verdict {
    i64 images = 0, bad = 0, resumed = 0;
    std::string first;
  };
  enum class Disaster { process_death, power_loss };

  // Keeps freed memory for reuse, because thousands of disk images of a few MiB are made.
  static void SetUpTestSuite() {
    ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  }

  IoLog record(int overlap, Durability durability, u32 seed) {
    const auto real = offload::make_io_engine(offload::IoEngineKind::pread).engine;
    RecordingEngine engine(*real, seed);
    engine.linger();
    const auto last = Training(options(overlap), engine, folder_.path(), durability).train([&](i64 number) { engine.mark(number); });
    wanted_ = undisturbed(options(overlap));
    EXPECT_TRUE(last == wanted_.back());
    return engine.log();
  }

  static i64 tables_end() {
    const nn::Sequential model = models::build(options(0).model, DType::f32);
    return offload::data_offset(make_plan(plan_request(model, options(0))).store.persistent_tiles, 0);
  }

  // Checks the recovery from every `stride`-th disk image. After every `resume_every`-th of these, training is resumed as well.
  Verdict judge(const IoLog& log, int overlap, Durability durability, Disaster disaster, int samples, i64 resume_every, i64 stride = 1) {
    Verdict verdict;
    i64 made = 0;
    offload::IoEngine* engine = nullptr;
    const auto boot = disaster == Disaster::power_loss ? "the next boot" : nullptr;
    const RunOptions o = options(overlap);
    CrashImages images(log, 5, [&](const Image& image, size_t entries) {
      if (made++ % stride != 0) return;
      ImageEngine on_image(image);
      engine = &on_image;
      if (!training_) training_.emplace(o, *engine, folder_.path(), durability, boot);
      const bool resume = ++verdict.images % resume_every == 0;
      verdict.resumed += resume;
      const std::string what = objection(log, entries, on_image, resume ? &o : nullptr, durability, boot);
      if (what.empty()) return;
      if (++verdict.bad == 1) verdict.first = "after entry " + std::to_string(entries) + ": " + what;
    });
    disaster == Disaster::process_death ? images.process_deaths(samples) : images.power_losses(samples);
    training_.reset();
    return verdict;
  }

 private:
  // Returns what is wrong with a restart from an image, or an empty text if nothing is.
  std::string objection(const IoLog& log, size_t entries, offload::IoEngine& engine, const RunOptions* resume, Durability durability,
                        const char* boot) {
    i64 asked = -1, reported = -1;  // the last step whose commit was requested, and the last step whose commit was reported as done
    for (size_t i = 0; i < entries; ++i) {
      if (log.entries[i].kind != IoLog::Kind::mark) continue;
      const i64 mark = log.entries[i].mark;
      (mark % 2 == 1 ? asked : reported) = (mark - 1) / 2;
    }
    try {
      undo_setting_aside(folder_.path());
      i64 step = -1;
      {
        parallel::Resources resources = training_->resources();
        resources.engine = &engine;
        parallel::ModelState state(training_->plan(), resources);
        if (!state.recovered()) return reported < 0 ? "" : "nothing was found: " + state.why_not_recovered();
        step = std::stol(state.recovered()->substr(5));
        if (step < reported || step > asked) return record_of(step) + " was found after the report of " + std::to_string(reported);
        if (training_->bytes_of(state) != wanted_[static_cast<size_t>(step)]) return "other bytes than those after " + record_of(step);
      }
      if (resume && Training(*resume, engine, folder_.path(), durability, boot).train() != wanted_.back())
        return "other bytes at the end, going on from " + record_of(step);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  TemporaryFolder folder_{fast_folder()};
  std::optional<Training> training_;
  std::vector<std::vector<std::byte>> wanted_;
};

// Shows that the adaptive overlap of options(3) defers some groups, but not all.
TEST(ProgramCrashOptions, LeaveSomeStepsToTheNextForward) {
  const nn::Sequential model = models::build(options(3).model, DType::f32);
  const parallel::Plan plan = make_plan(plan_request(model, options(3)));
  const auto deferred = std::ranges::count(plan.residency, true, &parallel::GroupResidency::deferred);
  EXPECT_GT(deferred, 0);
  EXPECT_LT(deferred, std::ssize(plan.residency));
}

// Checks the recovery from a few images from all over the run, as a quick version of the test below.
TEST_F(ProgramCrash, SomeInstantsRecover) {
  const IoLog log = record(3, Durability::step, 1);
  const Verdict verdict = judge(log, 3, Durability::step, Disaster::process_death, 0, 50, 11);
  EXPECT_EQ(verdict.bad, 0) << "of " << verdict.images << ", the first " << verdict.first;
  EXPECT_GE(verdict.images, 100);
}

// Checks the recovery from more than 10,000 images altogether, as the full version of the test above.
class ProgramCrashRelease : public ProgramCrash, public testing::WithParamInterface<int> {};

TEST_P(ProgramCrashRelease, EveryInstantOfAProcessRecovers) {
  const IoLog log = record(GetParam(), Durability::checkpoint, 1);
  const Verdict verdict = judge(log, GetParam(), Durability::checkpoint, Disaster::process_death, 3, 50);
  EXPECT_EQ(verdict.bad, 0) << "of " << verdict.images << ", the first " << verdict.first;
  EXPECT_GE(verdict.images, 1250);
  std::cout << verdict.images << " images, " << verdict.resumed << " trained on from\n";
}

TEST_P(ProgramCrashRelease, EveryPowerLossRecovers) {
  const IoLog log = record(GetParam(), Durability::step, 2);
  const Verdict verdict = judge(log, GetParam(), Durability::step, Disaster::power_loss, 3, 50);
  EXPECT_EQ(verdict.bad, 0) << "of " << verdict.images << ", the first " << verdict.first;
  EXPECT_GE(verdict.images, 1250);
  std::cout << verdict.images << " images, " << verdict.resumed << " trained on from\n";
}

const auto overlap_name = [](const auto& overlap) { return kOverlaps[overlap.param]; };
INSTANTIATE_TEST_SUITE_P(Overlaps, ProgramCrashRelease, testing::Values(1, 3), overlap_name);
INSTANTIATE_TEST_SUITE_P(SoakOverlaps, ProgramCrashRelease, testing::Values(0, 2), overlap_name);

// Shows that the test catches a planted fault: the writes of each commit's table and superblock are moved to an earlier place in the log,
// so that a commit precedes its writes.
TEST_F(ProgramCrash, ACommitBeforeItsWritesIsCaught) {
  IoLog log = record(0, Durability::checkpoint, 3);
  const auto is_commit = [&](const IoLog::Entry& e) {
    const bool write = e.kind == IoLog::Kind::submitted || e.kind == IoLog::Kind::completed;
    return write && log.writes[e.write].offset >= offload::kSuperblockOffset && log.writes[e.write].offset < tables_end();
  };
  for (size_t i = 24; i < log.entries.size(); ++i) {
    const auto here = log.entries.begin() + static_cast<std::ptrdiff_t>(i);
    if (is_commit(*here)) std::rotate(here - 24, here, here + 1);
  }
  EXPECT_GT(judge(log, 0, Durability::checkpoint, Disaster::process_death, 0, 1000000, 5).bad, 0);
}

}  // namespace
}  // namespace spillway::test::program_crash_test
