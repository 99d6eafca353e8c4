// Tests the optimizer inside the backward (speculative), inside the next forward, or partly in each. Every loss, norm and weight equals
// to the bit those of a run with the optimizer after the backward: with clipping in no, some or all steps, with a skipped step, and with
// gradient accumulation in both orders. Counters show that updates were redone and skipped as intended, and that exactly the planned
// bytes moved.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/cells.h"

namespace spillway::test::overlap_test {
namespace {

using parallel::Op;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

struct Corner {
  Tier parameters, gradients, optimizer;
};
constexpr Corner kCorners[] = {{Tier::device, Tier::device, Tier::device}, {Tier::device, Tier::device, Tier::nvme},
                               {Tier::host, Tier::host, Tier::host},       {Tier::nvme, Tier::host, Tier::nvme},
                               {Tier::nvme, Tier::nvme, Tier::nvme},       {Tier::device, Tier::nvme, Tier::host}};
constexpr i64 kSteps = 5;

// Builds with a sanitizer are ten times slower. They run fewer layers, each still with several buckets, and fewer of the cells that
// differ only in numbers, so that the code paths are the same.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr i64 kLayers = 2;
constexpr int kPrefetches[] = {1}, kSpillPrefetches[] = {2};
#else
constexpr i64 kLayers = 4;
constexpr int kPrefetches[] = {0, 1, 3}, kSpillPrefetches[] = {0, 2};
#endif

RunOptions base(const char* preset = "gpt2-tiny") {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = kLayers;
  o.steps = kSteps;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  return o;
}

// Trains the reference: everything on the device, one micro-batch after the other, the optimizer after the backward.
RunResult plain(RunOptions o) {
  o.parameters = o.gradients = o.optimizer = Tier::device;
  o.overlap = OptimizerOverlap::none;
  o.order = Order::micro_batch;
  o.adaptive = o.recompute = false;
  return train(o);
}

void expect_same(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.weights, want.weights);
  for (size_t t = 0; t < offload::kTiers; ++t) {
    EXPECT_EQ(got.moved.read[t], got.planned.read[t]) << "tier " << t;
    EXPECT_EQ(got.moved.written[t], got.planned.written[t]) << "tier " << t;
  }
  EXPECT_LE(got.peak_bytes[0], got.plan.total[0]);
  EXPECT_EQ(got.peak_bytes[1], got.plan.total[1]);
}

i64 count(const RunResult& r, bool parallel::StepResult::*what) {
  return std::count_if(r.steps.begin(), r.steps.end(), [&](const auto& s) { return s.*what; });
}

// Says when the optimizer's update is made. "split" updates half of the groups inside the backward and half inside the next forward.
struct Where {
  const char* name;
  OptimizerOverlap overlap;
  int deferred_sixteenths = 0;
};
constexpr Where kWheres[] = {{"none", OptimizerOverlap::none},
                             {"backward", OptimizerOverlap::backward},
                             {"forward", OptimizerOverlap::forward},
                             {"split", OptimizerOverlap::backward, 8}};

class Overlap : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  RunOptions options() const {
    RunOptions o = base();
    const Corner& c = kCorners[std::get<0>(GetParam())];
    o.parameters = c.parameters;
    o.gradients = c.gradients;
    o.optimizer = c.optimizer;
    o.overlap = where().overlap;
    o.deferred_sixteenths = where().deferred_sixteenths;
    return o;
  }
  const Where& where() const { return kWheres[std::get<1>(GetParam())]; }
  bool speculates() const { return where().overlap == OptimizerOverlap::backward; }
};

// Shows that results are bitwise the same for all kinds of clipping. The first norms are around 3: a threshold of 100 clips no step, 1e-3
// clips all, and the median norm clips half of them.
TEST_P(Overlap, SameBitsWhetherClippingBites) {
  RunOptions o = options();
  std::vector<double> norms = plain(o).norms;
  std::sort(norms.begin(), norms.end());
  for (const auto& [clip, clipped] : {std::pair(100.0, i64{0}), {1e-3, kSteps}, {norms[kSteps / 2], kSteps / 2 + 1}}) {
    o.gradient_clipping = clip;
    const RunResult got = train(o);
    expect_same(got, plain(o));
    EXPECT_EQ(count(got, &parallel::StepResult::clipped), clipped) << clip;
    EXPECT_EQ(count(got, &parallel::StepResult::redo), speculates() ? clipped : 0) << clip;
  }
}

// Shows that results are bitwise the same across a skipped step. Row 200 of the position embedding holds infinite values, and only the
// second step reads this row.
TEST_P(Overlap, SameBitsAcrossASkippedStep) {
  RunOptions o = options();
  o.weights = [](const nn::Parameter& p, i64 begin, std::span<double> out) {
    nn::initial_values(p, 1, begin, out);
    const i64 width = p.shape[-1];
    for (i64 i = 0; p.name.ends_with("wpe.weight") && i < std::ssize(out); ++i) {
      if ((begin + i) / width == 200) out[static_cast<size_t>(i)] = std::numeric_limits<double>::infinity();
    }
  };
  o.batches = [&](i64 step, int) {
    StepBatch batch = random_batch(o, step);
    if (step == 1) batch.micro_batches[0].positions_BT.data<i32>()[5] = 200;
    return batch;
  };
  const RunResult got = train(o), want = plain(o);
  ASSERT_FALSE(std::isfinite(got.norms[1]));
  EXPECT_EQ(count(got, &parallel::StepResult::skipped), 1);
  for (size_t i : {0u, 2u, 3u, 4u}) {
    EXPECT_EQ(got.losses[i], want.losses[i]) << i;
    EXPECT_EQ(got.norms[i], want.norms[i]) << i;
  }
  EXPECT_EQ(got.weights, want.weights);
}

TEST_P(Overlap, SameBitsWithAccumulationInBothOrders) {
  RunOptions o = options();
  o.steps = 2;
  o.micro_batches = 4;
  o.sequence_length = 16;
  const RunResult want = plain(o);
  for (const Order order : {Order::micro_batch, Order::vertical}) {
    for (const bool recompute : {false, true}) {
      for (const int prefetch : kPrefetches) {
        o.order = order;
        o.recompute = recompute;
        o.prefetch = prefetch;
        expect_same(train(o), want);
      }
    }
  }
}

std::string cell_name(const testing::TestParamInfo<Overlap::ParamType>& info) {
  return "corner" + std::to_string(std::get<0>(info.param)) + "_" + kWheres[std::get<1>(info.param)].name;
}

const auto kCells = cells_of(range(0, 6), range(0, 4));
INSTANTIATE_TEST_SUITE_P(Corners, Overlap, testing::ValuesIn(kCells.diagonal), cell_name);
INSTANTIATE_TEST_SUITE_P(SoakCorners, Overlap, testing::ValuesIn(kCells.rest), cell_name);

// Tests saved activations, or with recomputation only the inputs of blocks, that are offloaded to host memory or disk.
class ActivationSpill : public testing::TestWithParam<std::tuple<Tier, bool, Order>> {};

TEST_P(ActivationSpill, SameBitsAndTheBytesMove) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    for (const int prefetch : kSpillPrefetches) {
      RunOptions o = base(preset);
      o.steps = 2;
      o.micro_batches = 3;
      o.sequence_length = 16;
      o.parameters = o.optimizer = Tier::nvme;
      o.gradients = Tier::host;
      o.overlap = OptimizerOverlap::forward;
      o.prefetch = prefetch;
      o.threads = 2;
      const Tier tier = std::get<0>(GetParam());
      std::tie(o.activations, o.recompute, o.order) = GetParam();
      const RunResult got = train(o);
      expect_same(got, plain(o));
      const auto spilled = [&](const parallel::Instruction& i) { return i.op == Op::Forward && i.spill.bytes > 0; };
      EXPECT_GE(std::count_if(got.plan.train.head.begin(), got.plan.train.head.end(), spilled), o.micro_batches * (kLayers - 1));
      o.activations = Tier::device;
      const RunResult kept = train(o);
      EXPECT_GT(got.moved.read[static_cast<size_t>(tier)], kept.moved.read[static_cast<size_t>(tier)]);
      EXPECT_LT(got.plan.activation_slab_bytes, kept.plan.activation_slab_bytes);
    }
  }
}

const auto kSpills =
    cells_of(std::vector{Tier::host, Tier::nvme}, std::vector{false, true}, std::vector{Order::micro_batch, Order::vertical});
INSTANTIATE_TEST_SUITE_P(Tiers, ActivationSpill, testing::ValuesIn(kSpills.diagonal));
INSTANTIATE_TEST_SUITE_P(SoakTiers, ActivationSpill, testing::ValuesIn(kSpills.rest));

// Shows when the adaptive overlap updates inside the backward (speculates): until more than half of the recent steps were clipped, and
// again when they no longer are. All updates of a clipped step are redone at the start of the next step, whichever instruction lists that
// step runs.
TEST(AdaptiveOverlap, ChangesItsProgramAndNoBit) {
  const std::set<i64> clipped{3, 4, 5, 6, 8, 9}, speculated{3, 4, 5, 6, 8};
  for (const Corner& c : {kCorners[2], kCorners[4]}) {
    for (const int sixteenths : {0, 8}) {
      RunOptions o = base();
      o.parameters = c.parameters;
      o.gradients = c.gradients;
      o.optimizer = c.optimizer;
      o.sequence_length = 8;
      o.micro_batch_size = 1;
      o.adaptive = true;
      o.deferred_sixteenths = sixteenths;
      o.steps = 12;
      o.clipping = [&](i64 step) { return clipped.count(step) > 0 ? 1e-6 : 1e6; };
      const RunResult got = train(o);
      expect_same(got, plain(o));
      for (i64 step = 0; step < o.steps; ++step) {
        const auto& result = got.steps[static_cast<size_t>(step)];
        EXPECT_EQ(result.clipped, clipped.count(step) > 0) << step;
        EXPECT_EQ(result.redo, speculated.count(step) > 0) << step;
      }
    }
  }
}

// Shows that gradients of more than one block stay in the device's memory until their updates, as long as this takes no more memory than
// the end of the backward needs anyway.
TEST(StayingGradients, TakeTheMemoryThereIs) {
  const nn::Sequential model = models::build(models::preset("gpt2-124m"), DType::bf16);
  RunOptions o = base("gpt2-124m");
  o.dtype = DType::bf16;
  o.max_bucket_elems = parallel::kMaxBucketElems;
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  for (const auto& [overlap, adaptive, sixteenths] : {std::tuple(OptimizerOverlap::none, false, 0),
                                                      {OptimizerOverlap::backward, false, 0},
                                                      {OptimizerOverlap::forward, false, 0},
                                                      {OptimizerOverlap::backward, true, 0},
                                                      {OptimizerOverlap::backward, true, 8}}) {
    o.overlap = overlap;
    o.adaptive = adaptive;
    o.deferred_sixteenths = sixteenths;
    const parallel::PlanRequest request = plan_request(model, o);
    const parallel::Plan plan = make_plan(request);
    const auto with = [&](u16 blocks) {
      parallel::Scheduling scheduling = request.scheduling;
      scheduling.staying_blocks = blocks;
      return generate_training(plan.layout, plan.placement, scheduling).moving_slab_bytes();
    };
    const u16 blocks = plan.scheduling.staying_blocks;
    EXPECT_EQ(plan.train.moving_slab_bytes(), with(1));
    if (plan.scheduling.defers()) {
      EXPECT_EQ(blocks, 2);  // with more blocks, the fetch of the first weights would wait for another update
    } else {
      EXPECT_GT(blocks, 2);
      EXPECT_GT(with(static_cast<u16>(blocks + 1)), with(1));
    }
  }
}

// Shows that a deferred update is made before a validation or any other reader of the weights. Its last gradient lies in memory that
// validation uses for weights.
TEST(DeferredStep, IsDoneBeforeAnybodyLooks) {
  for (const bool adaptive : {false, true}) {
    RunOptions o = base();
    o.parameters = o.gradients = o.optimizer = Tier::nvme;
    o.adaptive = adaptive;
    o.deferred_sixteenths = 8;
    if (!adaptive) o.overlap = OptimizerOverlap::forward;
    const RunResult want = plain(o);
    std::vector<double> seen;
    o.between = [&](parallel::Rank& rank, i64 steps) {
      if (steps % 2 == 0) seen.push_back(rank.evaluate(random_batch(o, steps).micro_batches[0]));
    };
    const RunResult got = train(o);
    EXPECT_EQ(got.losses, want.losses);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.weights, want.weights);
    EXPECT_EQ(std::ssize(seen), kSteps / 2);
    const std::vector<double> before = std::exchange(seen, {});
    plain(o);
    EXPECT_EQ(seen, before);
  }
}

// Shows that in vertical order with everything on disk, weights are fetched twice per
// step (forward and backward), however many micro-batches there are.
TEST(VerticalOrder, WeightsTravelOnceAWay) {
  RunOptions o = base();
  o.steps = 1;
  o.parameters = o.gradients = Tier::nvme;
  const auto fetched_bytes = [&](i64 micro_batches, Order order) {
    o.micro_batches = micro_batches;
    o.order = order;
    i64 bytes = 0;
    for (const auto& i : train(o).plan.train.head) {
      if (i.op == Op::Fetch && i.what == parallel::What::weights) bytes += i.read_bytes[static_cast<size_t>(Tier::nvme)];
    }
    return bytes;
  };
  EXPECT_EQ(fetched_bytes(8, Order::vertical), fetched_bytes(1, Order::micro_batch));
  EXPECT_GT(fetched_bytes(8, Order::micro_batch), 4 * fetched_bytes(8, Order::vertical));
}

std::string refusal(const parallel::Program& program, const parallel::Plan& plan) {
  try {
    check(program, plan.layout, plan.placement, plan.scheduling);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Shows that the checker refuses an optimizer update (Op::Step) that does not wait for its gradient, and an instruction that reads
// weights without waiting for their deferred update.
TEST(OverlapCheck, RefusesAStepOutOfPlace) {
  RunOptions o = base();
  o.steps = 0;
  o.optimizer = Tier::nvme;
  o.gradients = Tier::host;
  for (const Where& where : {kWheres[1], kWheres[2], kWheres[3]}) {
    for (const Tier parameters : {Tier::nvme, Tier::host}) {
      o.overlap = where.overlap;
      o.deferred_sixteenths = where.deferred_sixteenths;
      o.parameters = parameters;
      const parallel::Plan plan = train(o).plan;
      ASSERT_EQ(refusal(plan.train, plan), "");
      for (const auto list : {&parallel::Program::head, &parallel::Program::first_head, &parallel::Program::clipped_head}) {
        const parallel::List& all = plan.train.*list;
        int refused = 0, steps = 0;
        for (size_t i = 0; i < all.size(); ++i) {
          const bool step = all[i].op == Op::Step;
          steps += step;
          const bool waits = step ? !all[i].deferred : all[i].op == Op::Fetch && all[i].what == parallel::What::weights;
          if (!waits || all[i].after.empty()) continue;
          parallel::Program broken = plan.train;
          (broken.*list)[i].after.clear();
          refused += !refusal(broken, plan).empty();
        }
        if (steps > 0) {
          EXPECT_GE(refused, where.deferred_sixteenths > 0 ? 3 : 5) << where.name;
        }
        for (size_t i = 0; i < all.size(); ++i) {
          if (all[i].op != Op::Step) continue;
          parallel::Program broken = plan.train;
          (broken.*list)[i].op = Op::Load;
          EXPECT_NE(refusal(broken, plan), "") << where.name;
          (broken.*list)[i] = all[i];
          (broken.*list)[i].deferred ^= true;
          EXPECT_NE(refusal(broken, plan), "") << where.name;
        }
      }
    }
  }
}

// Shows that an optimizer update inside the backward must wait until the previous update is committed. The update overwrites the older of
// two copies of the state, which must stay valid until the deferred updates have completed the newer copy.
TEST(OverlapCheck, RefusesASpeculationBeforeTheCommitOfTheUpdateBefore) {
  RunOptions o = base();
  o.steps = 0;
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  o.overlap = OptimizerOverlap::backward;
  o.deferred_sixteenths = 8;
  const parallel::Plan plan = train(o).plan;
  for (const auto list : {&parallel::Program::head, &parallel::Program::clipped_head}) {
    parallel::Program broken = plan.train;
    const auto commit = std::ranges::find(broken.*list, Op::Commit, &parallel::Instruction::op);
    ASSERT_NE(commit, (broken.*list).end());
    commit->op = Op::Load;
    const std::string why = refusal(broken, plan);
    EXPECT_NE(why.find("is committed"), std::string::npos) << why;
  }
}

// Shows that deferred groups are spread evenly over the blocks. The first block is always
// deferred, since its gradient is finished last and its weights are needed first.
TEST(DeferredGroups, AreSpreadOverTheBlocks) {
  const nn::Sequential model = models::build(models::preset("gpt2-124m"), DType::bf16);
  RunOptions o = base("gpt2-124m");
  o.dtype = DType::bf16;
  parallel::PlanRequest request = plan_request(model, o);
  request.scheduling.overlap = OptimizerOverlap::backward;
  const parallel::Layout layout = restricted(request.layout, std::vector<u16>(request.layout.blocks.size(), 0), 0);
  i64 all = 0, first = 0;
  for (const parallel::Group& g : layout.groups) all += g.elems, first += g.owner_block == 0 ? g.elems : 0;
  for (int sixteenths = 0; sixteenths <= parallel::kAllSixteenths; ++sixteenths) {
    request.scheduling.deferred_sixteenths = sixteenths;
    const parallel::Residency residency = resolve(layout, request.placement, request.scheduling);
    i64 inside = 0, layer = 0;
    for (const parallel::Group& g : layout.groups) {
      if (g.owner_block == 0) {
        EXPECT_EQ(residency[g.id].deferred, sixteenths > 0);
      }
      if (g.owner_block == 5) layer = g.elems;
      if (g.owner_block == 12) {  // block 12 is the first one that the backward reaches
        EXPECT_EQ(residency[g.id].deferred, sixteenths == parallel::kAllSixteenths);
      }
      inside += residency[g.id].deferred ? 0 : g.elems;
    }
    const i64 wanted = all * (parallel::kAllSixteenths - sixteenths) / parallel::kAllSixteenths;
    EXPECT_LE(std::abs(inside - (sixteenths == 0 ? all : std::min(wanted, all - first))), layer) << sixteenths;
  }
}

}  // namespace
}  // namespace spillway::test::overlap_test
