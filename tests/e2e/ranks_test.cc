// Tests ranks that a user starts with mpirun: they give bitwise the results of ranks that are threads, can be resumed with another number
// of ranks, stopped, and killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <random>

#include "tests/e2e/support_program.h"

namespace spillway::test::ranks_test {
namespace {

namespace fs = std::filesystem;

constexpr int kEndless = 1'000'000;  // steps of a run that ends only by a signal or a kill; the numbers of a step do not depend on it

struct RanksOfMpi : testing::Test {
  Workplace at;
  RanksOfMpi() {
    at.write_text("text.txt", 60000);
    // Open MPI's variables below let mpirun be started by root and with fewer cores than ranks.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
      ::setenv(name, "1", 1);
    ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI itself leaks
  }
  void SetUp() override {
    if (std::string(SPILLWAY_MPIEXEC).empty()) GTEST_SKIP() << "built without MPI";
  }
  void ranks(int count) {
    if (count == 1) return at.start_by({});
    at.start_by({SPILLWAY_MPIEXEC, "-n", std::to_string(count)});
  }
  static Args flags(const std::string& out, int steps, const Args& more) {
    Args all = small_run(out, steps, "64MiB", {"--lr-schedule", "constant", "--warmup-steps", "7", "--nvme", "scratch"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static Args everything_on_nvme(const std::string& stage) {
    return {"--zero-stage", stage, "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"};
  }
  std::string state(const std::string& out, int step) const {
    const std::string number = std::to_string(step), folder = out + "/checkpoints/step-" + std::string(8 - number.size(), '0') + number;
    return at.read(folder + "/model.safetensors") + at.read(folder + "/optimizer.safetensors");
  }
  // Returns the process ids of the ranks, in the order of their numbers.
  std::vector<pid_t> rank_pids() const {
    const std::string pid = std::to_string(at.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    return {std::istream_iterator<pid_t>(children), {}};
  }
};
using RanksOfMpiMore = RanksOfMpi;

using RanksOfMpiRelease = RanksOfMpi;
TEST_F(RanksOfMpiRelease, GiveTheBitsOfThreadsAtEveryStage) {
  const Args batch = {"--gradient-accumulation-steps", "2", "--validation-fraction", "0.01"};
  Args plain = batch;
  plain.insert(plain.end(), {"--zero-stage", "0", "--ranks", "2", "--communicator", "local"});
  const Finished threads = at.spillway(flags("threads", 5, plain));
  ASSERT_EQ(threads.status, 0) << threads.err;
  ASSERT_EQ(at.metrics("threads").size(), 5u);
  ASSERT_GT(state("threads", 5).size(), 1'000'000u);
  ranks(2);
  for (const char* stage : {"0", "1", "2", "3"}) {
    const std::string out = std::string("stage") + stage;
    Args args = batch;
    const Args placed = stage == std::string("3") ? everything_on_nvme("3") : Args{"--zero-stage", stage};
    args.insert(args.end(), placed.begin(), placed.end());
    const Finished f = at.spillway(flags(out, 5, args));
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics("threads"))) << out;
    EXPECT_TRUE(state(out, 5) == state("threads", 5)) << out;
  }
}

TEST_F(RanksOfMpiMore, EvaluateAndGenerateSayWhatOneRankSays) {
  ranks(1);
  ASSERT_EQ(at.spillway(flags("run", 2, {})).status, 0);
  at.write_text("held_out.txt", 6000);
  const Args placed = {"--model", "run", "--device-memory", "64MiB", "--threads", "1", "--zero-stage", "3", "--quiet"};
  for (Args args : {Args{"evaluate", "--data", "held_out.txt", "--sequence-length", "256", "--json"},
                    Args{"generate", "--prompt", "the river", "--max-tokens", "8"}}) {
    args.insert(args.end(), placed.begin(), placed.end());
    ranks(1);
    const Finished one = at.spillway(args);
    ranks(2);
    const Finished two = at.spillway(args);
    EXPECT_EQ(one.status + two.status, 0) << one.err << two.err;
    EXPECT_EQ(two.out, one.out);
  }
}

TEST_F(RanksOfMpiMore, ARunGoesOnWithOtherNumbersOfRanks) {
  Args on_nvme = everything_on_nvme("3");
  on_nvme.insert(on_nvme.end(), {"--global-batch-size", "12"});
  ranks(4);
  const Finished four = at.spillway(flags("run", 3, on_nvme));
  ASSERT_EQ(four.status, 0) << four.err;
  ranks(1);
  const Finished one = at.spillway(flags("run", 5, {"--global-batch-size", "12", "--place-parameters", "host"}));
  EXPECT_TRUE(one.status == 0 && mentions(one.err, "continues at step 3 of 5")) << one.err;
  ranks(4);
  const Finished pipelines = at.spillway(flags("run", 6, {"--pipeline-stages", "2", "--zero-stage", "2"}));
  EXPECT_TRUE(pipelines.status == 0 && mentions(pipelines.err, "continues at step 5 of 6")) << pipelines.err;
  ranks(3);
  const Finished three = at.spillway(flags("run", 8, {"--gradient-accumulation-steps", "5", "--zero-stage", "1"}));
  EXPECT_TRUE(three.status == 0 && mentions(three.err, "continues at step 6 of 8")) << three.err;
  EXPECT_EQ(at.metrics("run").size(), 8u);
  EXPECT_EQ(std::distance(fs::directory_iterator(at / "scratch"), {}), 0) << "nothing stays behind";
}

// Sends a signal to one rank. All ranks save after the same step, and the run continues from that step as if nothing had happened.
TEST_F(RanksOfMpi, ASignalToOneRankStopsAll) {
  ranks(2);
  int told = 0;
  const auto tell = [&] {
    if (at.metrics("run").size() >= 3 && !told++) ::kill(rank_pids().back(), SIGUSR1);
    return false;
  };
  const Finished f = at.spillway_until(flags("run", kEndless, {"--zero-stage", "2"}), tell, SIGKILL);
  EXPECT_EQ(f.status, 75) << f.err;
  EXPECT_TRUE(mentions(f.err, "stopped by SIGUSR1 of rank 1 on host")) << f.err;
  const auto steps = static_cast<int>(at.metrics("run").size());
  for (const char* out : {"run", "straight"}) {
    const Finished end = at.spillway(flags(out, steps + 2, {"--zero-stage", "2"}));
    ASSERT_EQ(end.status, 0) << end.err;
  }
  EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("straight")));
  EXPECT_GT(state("run", steps + 2).size(), 1'000'000u);
  EXPECT_TRUE(state("run", steps + 2) == state("straight", steps + 2));
}

// Kills a rank at a random instant, again and again. The run continues from nvme and ends with bitwise the results of an undisturbed run.
struct KilledRanks : RanksOfMpi {
  // Kills a rank of each run `deaths` times.
  void kill_each(int deaths) {
    std::mt19937 random(7);
    ranks(2);
    const auto run = [&](const std::string& out, const std::string& overlap, int steps) {
      Args args = everything_on_nvme("2");
      args.insert(args.end(), {"--optimizer-overlap", overlap});
      return flags(out, steps, args);
    };
    for (const char* overlap : {"none", "forward", "backward"}) {
      const std::string out = std::string("killed-") + overlap;
      for (int death = 0; death < deaths; ++death) {
        const size_t seen = at.metrics(out).size() + 2 + random() % 5, rank = random() % 2;
        int killed = 0;
        const auto kill_one = [&] {
          const std::vector<pid_t> pids = rank_pids();
          if (at.metrics(out).size() >= seen && pids.size() == 2 && !killed++) ::kill(pids[rank], SIGKILL);
          return false;
        };
        const Finished f = at.spillway_until(run(out, overlap, kEndless), kill_one, SIGKILL);
        EXPECT_TRUE(killed && f.status != 0) << f.err;
        EXPECT_EQ(mentions(f.err, "from the state on nvme"), death > 0) << f.err;
      }
      const int steps = static_cast<int>(at.metrics(out).size()) + 3;
      const Finished last = at.spillway(run(out, overlap, steps));
      EXPECT_TRUE(last.status == 0 && mentions(last.err, "from the state on nvme")) << last.err;
      const std::string straight = "straight-" + out;
      const Finished undisturbed = at.spillway(run(straight, "none", steps));
      ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
      EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics(straight)));
      EXPECT_TRUE(state(out, steps) == state(straight, steps)) << out;
    }
  }
};
using SoakKilledRanks = KilledRanks;
TEST_F(SoakKilledRanks, CostNoMoreThanAStep) { kill_each(4); }

}  // namespace
}  // namespace spillway::test::ranks_test
