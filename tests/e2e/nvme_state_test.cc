// Tests a run with all of its state on nvme and no checkpoint before its end: killed at any instant, it continues from the store and gives
// bitwise the same results. Also tests faults of the store: damaged bytes, no room, a disk that fills up, and a second run beside it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::nvme_state_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct NvmeState : NvmeRun {
  // Kills a run after it has done `steps` steps.
  void kill_after(const std::string& out, size_t steps) const {
    const Finished f = at.spillway_until(
        on_nvme(out, "none"), [&] { return at.metrics(out).size() >= steps; }, SIGKILL);
    ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
  }

  // Flips one bit in every fourth page behind the store's tables.
  static void flip_bits(const fs::path& tiles) {
    std::fstream file(tiles, std::ios::in | std::ios::out | std::ios::binary);
    const auto bytes = static_cast<long>(fs::file_size(tiles));
    for (long offset = 65536 + 100; offset < bytes; offset += 16384) {
      char c = 0;
      file.seekg(offset).get(c);
      file.seekp(offset).put(static_cast<char>(c ^ 4));
    }
  }
};
using NvmeStateMore = NvmeState;

// Kills a run again and again from its start to its end, then the next run, until there were enough kills.
struct KillInstants : NvmeState {
  // Returns the step that a start says it continues at, -1 for a new run, and nothing if the start died before it said so.
  static std::optional<long> stated_step(const std::string& err) {
    std::smatch found;
    static const std::regex line("(?:continues at step (\\d+) of \\d+ from the state on nvme|new run of) ?[^\n]*\n");
    if (!std::regex_search(err, found, line)) return {};
    return found[1].matched ? std::stol(found[1]) : -1;
  }

  // Returns a command line with validations. If a kill interrupts a validation, the next start makes it up.
  static Args validating(const std::string& out, const std::string& overlap) {
    Args args = on_nvme(out, overlap);
    args.insert(args.end(), {"--validate-every", "3", "--validation-fraction", "0.1", "--validation-steps", "20"});
    return args;
  }

  void kill(int wanted) {
    const auto begin = Clock::now();
    ASSERT_EQ(at.spillway(validating("straight", "none")).status, 0);
    const auto whole_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
    std::mt19937 random(17);
    const char* overlaps[] = {"none", "backward", "forward", "auto"};
    int kills = 0, stated = 0, runs = 0;
    for (; kills < wanted; ++runs) {
      const std::string out = "killed-" + std::to_string(runs);
      const Args args = validating(out, overlaps[runs % 4]);
      long told = -1;  // the last step in metrics.jsonl when the run died; -1: none
      for (;;) {
        // For three of four kills the delay is counted from the line that names the step, so that most runs reach that step on any machine.
        const bool from_line = random() % 4 != 0;
        const auto after = std::chrono::microseconds(random() % static_cast<unsigned>(whole_us / 3));
        std::optional<Clock::time_point> counted_from;
        fs::remove(at / "stderr.txt");
        const auto now_is_the_time = [&] {
          if (!counted_from && (!from_line || stated_step(at.read("stderr.txt")))) counted_from = Clock::now();
          return counted_from && Clock::now() >= *counted_from + after;
        };
        const Finished f = at.spillway_until(args, now_is_the_time, SIGKILL);
        if (const auto step = stated_step(f.err)) {
          ++stated;
          // An optimizer update that is deferred to the next forward is committed in that forward, and so is a clipped update. So one
          // step may be lost.
          EXPECT_GE(*step, told > 1 ? told - (runs % 4 > 0) : -1) << f.err;
        }
        if (f.status == 0) break;
        ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
        ++kills;
        told = static_cast<long>(at.metrics(out).size());
      }
      expect_same_run(out, "straight");
      fs::remove_all(at / out);
    }
    std::cout << kills << " kills over " << runs << " runs, " << stated << " starts named their step\n";
    EXPECT_GE(stated, wanted / 2);
  }
};

using KillInstantsRelease = KillInstants;
TEST_F(KillInstantsRelease, EveryRestartGoesOnWithTheSameBits) { kill(20); }

using SoakKillInstants = KillInstants;
TEST_F(SoakKillInstants, TwoHundredOfThem) { kill(200); }

// Shows that the store keeps the loss scale. A loss averaged over only four tokens has
// large gradients, so it takes several steps to find a scale that fits.
TEST_F(NvmeStateMore, AKilledFp16RunGoesOnWithItsLossScale) {
  const auto fp16 = [](const std::string& out) {
    Args args = on_nvme(out, "backward");
    *(std::find(args.begin(), args.end(), "--sequence-length") + 1) = "4";
    args.insert(args.end(), {"--precision", "fp16"});
    return args;
  };
  const Finished straight = at.spillway(fp16("straight"));
  ASSERT_EQ(straight.status, 0);
  EXPECT_TRUE(mentions(straight.err, "the loss scale is 32768 from now on (gradients in a tile of model.")) << straight.err;
  EXPECT_TRUE(mentions(straight.err, " are not finite")) << straight.err;
  const Finished f = at.spillway_until(
      fp16("run"), [&] { return at.metrics("run").size() >= 12; }, SIGKILL);
  ASSERT_EQ(f.status, 128 + SIGKILL) << f.err;
  const Finished rest = at.spillway(fp16("run"));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "from the state on nvme")) << rest.err;
  expect_same_run("run", "straight");
  const auto first = nlohmann::json::parse(at.metrics("run").front()), last = nlohmann::json::parse(at.metrics("run").back());
  EXPECT_EQ(first["loss_scale"], 65536.0);
  EXPECT_LT(last["loss_scale"], 65536.0);
  EXPECT_EQ(last["skipped"], false);
  EXPECT_TRUE(mentions(at.read("run/checkpoints/step-00000030/manifest.json"), "\"loss_scale\": " + last["loss_scale"].dump()));
}

// Shows that a start with other flags is refused if it would leave the only state of a run behind, as there is no checkpoint.
TEST_F(NvmeState, AStartWithOtherFlagsDoesNotLeaveTheOnlyState) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  kill_after("run", 5);
  const auto everything = [&] {
    std::vector<std::string> all = {at.read("run/config.json"), at.read("run/metrics.jsonl")};
    for (const auto& entry : fs::recursive_directory_iterator(at / "scratch")) all.push_back(entry.path().string());
    return all;
  };
  const auto before = everything();
  const Args args = on_nvme("run", "none");
  const std::vector<std::pair<Args, std::string>> others = {
      {with(args, "--moments", "bf16"), "moments: \"fp32\" -> \"bf16\""},
      {with(args, "--optimizer", "sgd"), "optimizer: \"adamw\" -> \"sgd\""},
      {with(args, "--precision", "bf16"), "precision: \"fp32\" -> \"bf16\""},
      {with(args, "--ema", "0.9"), "ema: null -> 0.9"},
      {with(args, "--freeze", "model.layers.0.*"), "freeze: [] -> "},
      {with(args, "--gradient-dtype", "bf16"), "gradient_dtype: "},
      {with(args, "--learning-rate", "2e-3"), "learning_rate: 0.001 -> 0.002"},
      {with(args, "--place-optimizer", "host"), "not all weights and optimizer state are stored on nvme"},
      {with(args, "--durability", "step"), "it was made with another --durability"},
      {with(args, "--nvme", "elsewhere"), "--nvme names other paths"},
      {with(with(args, "--ranks", "2"), "--pipeline-stages", "2"), "another number of ranks"},
      {small_run("run", kSteps, "16MiB", {"--checkpoint-every", "100000"}), "is the only saved state of the run in run"},
  };
  for (const auto& [other, word] : others) {
    const Finished f = at.spillway(other);
    EXPECT_EQ(f.status, 2) << word << ": " << f.err;
    EXPECT_TRUE(mentions(f.err, word)) << word << ": " << f.err;
    EXPECT_TRUE(everything() == before) << word;
  }
  const Finished rest = at.spillway(args);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "from the state on nvme")) << rest.err;
  expect_same_run("run", "straight");
}

// Shows that nothing is lost if an allowed change needs another layout, because the state is first saved as a checkpoint.
TEST_F(NvmeState, AnAllowedChangeOfTheLayoutGoesOnFromTheState) {
  for (const auto& [key, flag, value] :
       {std::tuple("moments", "--moments", "bf16"), {"freeze", "--freeze", "model.layers.0.*"}, {"ema", "--ema", "0.9"}}) {
    const std::string out = std::string("run-") + key;
    kill_after(out, 5);
    const Finished f = at.spillway(with(with(on_nvme(out, "none"), flag, value), "--allow-change", key));
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_TRUE(mentions(f.err, "it is saved as a checkpoint first")) << f.err;
    EXPECT_TRUE(std::regex_search(f.err, std::regex("continues at step \\d+ of 30 from the last checkpoint"))) << f.err;
    EXPECT_EQ(at.metrics(out).size(), static_cast<size_t>(kSteps));
  }
}

TEST_F(NvmeState, ABitThatFlipsIsNamedAndTheRunStartsAnew) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  kill_after("run", 5);
  flip_bits(store());
  const Finished f = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(f.status, 5) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the state on nvme")) << f.err;
  EXPECT_TRUE(std::regex_search(f.err, std::regex("tile \\d+ of (weights|optimizer state) of group \\d+, generation \\d+"))) << f.err;
  EXPECT_TRUE(mentions(f.err, "/tiles")) << f.err;
  const Finished rest = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "new run")) << rest.err;
  expect_same_run("run", "straight");
}

TEST_F(NvmeStateMore, AfterABitThatFlipsTheSameCommandGoesOnFromItsCheckpoint) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  Args args = on_nvme("run", "none");
  *std::find(args.begin(), args.end(), "100000") = "4";
  // The save runs in the background, so the checkpoint of step 4 appears some steps later.
  const fs::path checkpoint = at / "run/checkpoints/step-00000004";
  const Finished killed = at.spillway_until(
      args, [&] { return at.metrics("run").size() >= 6 && fs::exists(checkpoint); }, SIGKILL);
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  flip_bits(store());
  const Finished f = at.spillway(args);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the last checkpoint")) << f.err;
  EXPECT_TRUE(std::regex_search(f.err, std::regex("nvme: the stored state is damaged.*tile \\d+ of .* at offset"))) << f.err;
  expect_same_run("run", "straight");
}

// Shows that no rank uses its state on nvme if one rank cannot use its own.
TEST_F(NvmeStateMore, AfterABitOfOneRankThatFlipsAllGoOnFromTheCheckpoint) {
  const auto on_two = [](const std::string& out) {
    Args args = on_nvme(out, "none");
    *std::find(args.begin(), args.end(), "100000") = "4";
    args.insert(args.end(), {"--ranks", "2", "--zero-stage", "1"});
    return args;
  };
  ASSERT_EQ(at.spillway(on_two("straight")).status, 0);
  const Finished killed = at.spillway_until(
      on_two("run"), [&] { return at.metrics("run").size() >= 6 && fs::exists(at / "run/checkpoints/step-00000004"); }, SIGKILL);
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  std::vector<fs::path> stores;
  for (const auto& entry : fs::recursive_directory_iterator(at / "scratch")) {
    if (entry.path().filename() == "tiles") stores.push_back(entry.path());
  }
  ASSERT_EQ(stores.size(), 2u);
  flip_bits(*std::ranges::max_element(stores));
  const Finished f = at.spillway(on_two("run"));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.err, "from the last checkpoint") && mentions(f.err, "nvme: the stored state is damaged")) << f.err;
  expect_same_run("run", "straight");
}

// Shows that a disk without room refuses the store before step 1, and that a disk that fills up later does not affect it: the store is
// preallocated.
TEST_F(NvmeState, AFullDiskRefusesTheStoreOrLeavesItAlone) {
  fs::create_directory(at / "small");
  if (::mount("tmpfs", (at / "small").c_str(), "tmpfs", 0, "size=64m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  const Args args = on_nvme("run", "none", "small");
  at.write("small/filler", std::string(50 << 20, 'x'));
  const Finished refused = at.spillway(args);
  EXPECT_EQ(refused.status, 3) << refused.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(at / "small"), {}), 1) << "nothing stays behind";
  fs::remove(at / "small/filler");
  int filled = 0;
  const Finished f = at.spillway_until(
      args,
      [&] {
        if (at.metrics("run").size() >= 3 && !filled++) at.write("small/filler", std::string(64 << 20, 'x'));
        return false;
      },
      SIGKILL);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_GE(filled, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(at / "small"), {}), 1) << "the store is gone at the end";
  ::umount((at / "small").c_str());
}

TEST_F(NvmeStateMore, TwoRunsOnOnePathDoNotMeet) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  const Workplace other;
  other.write_text("text.txt", 60000);
  bool checked = false;
  Args endless = on_nvme("first", "none");
  *std::find(endless.begin(), endless.end(), std::to_string(kSteps)) = "100000";
  const Finished f = at.spillway_until(
      endless,
      [&] {
        if (at.metrics("first").size() < 2) return false;
        const std::string nvme = (at / "scratch").string();
        const Finished same = other.spillway(on_nvme((at / "first").string(), "none", nvme));
        EXPECT_EQ(same.status, 2) << same.err;
        EXPECT_TRUE(mentions(same.err, "in use")) << same.err;
        const Finished another = other.spillway(on_nvme("second", "none", nvme));
        EXPECT_EQ(another.status, 0) << another.err;
        EXPECT_EQ(numbers_of(other.metrics("second")), numbers_of(at.metrics("straight")));
        checked = true;
        return true;
      },
      SIGTERM);
  EXPECT_TRUE(checked) << f.err;
  EXPECT_EQ(f.status, 75) << f.err;
}

// Checks that the memory, descriptors and store of the process do not grow over 2,000 steps with 20 checkpoints.
struct SoakLeak : NvmeState {
  struct Sample {
    double step, rss_mib;
    long descriptors, store_bytes;
  };
  Sample sample(size_t step) const {
    const fs::path process = "/proc/" + std::to_string(at.pid());
    Sample s{static_cast<double>(step), 0, 0, static_cast<long>(fs::file_size(store()))};
    std::ifstream status(process / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) s.rss_mib = std::stod(line.substr(6)) / 1024;
    }
    for ([[maybe_unused]] const auto& d : fs::directory_iterator(process / "fd")) ++s.descriptors;
    return s;
  }
  static double slope_per_step(const std::vector<Sample>& samples) {
    double x = 0, y = 0, xx = 0, xy = 0;
    const auto n = static_cast<double>(samples.size());
    for (const Sample& s : samples) x += s.step, y += s.rss_mib, xx += s.step * s.step, xy += s.step * s.rss_mib;
    return (n * xy - x * y) / (n * xx - x * x);
  }
};

TEST_F(SoakLeak, NothingGrowsOverTwoThousandSteps) {
  Args args = on_nvme("run", "auto");
  *std::find(args.begin(), args.end(), std::to_string(kSteps)) = "2000";
  *std::find(args.begin(), args.end(), "100000") = "100";
  std::vector<Sample> samples;
  auto next = Clock::now();
  const Finished f = at.spillway_until(
      args,
      [&] {
        if (Clock::now() < next) return false;
        next = Clock::now() + std::chrono::milliseconds(100);
        const size_t step = at.metrics("run").size();
        if (step >= 150 && step < 1990) samples.push_back(sample(step));
        return false;
      },
      SIGKILL);
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_GE(samples.size(), 50u);
  const double slope = 100 * slope_per_step(samples);
  // Saving opens files for a moment, so the least number of descriptors in a period tells how many stay open.
  const auto least = [&](auto begin, auto end) {
    return std::min_element(begin, end, [](const Sample& a, const Sample& b) { return a.descriptors < b.descriptors; })->descriptors;
  };
  const auto middle = samples.begin() + std::ssize(samples) / 2;
  EXPECT_LT(slope, 1.0) << "MiB per 100 steps";
  EXPECT_EQ(least(samples.begin(), middle), least(middle, samples.end()));
  for (const Sample& s : samples) {
    EXPECT_EQ(s.store_bytes, samples[0].store_bytes);
    EXPECT_LE(s.descriptors, least(samples.begin(), middle) + 4);
  }
  std::cout << samples.size() << " samples: " << slope << " MiB per 100 steps at " << samples.back().rss_mib << " MiB, "
            << least(middle, samples.end()) << " descriptors, store of " << samples[0].store_bytes << " bytes\n";
}

}  // namespace
}  // namespace spillway::test::nvme_state_test
