// Tests commands on ranks that are threads of this process and whose GPUs exchange data over NCCL. Losses
// and states equal those of exchanges through host memory. Impossible requests are refused with one line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <tuple>

#include "device/device_query.h"
#include "parallel/exchange/nccl_cuda.h"
#include "parallel/exchange/nccl_exchange.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/ranks/gpu_meeting.h"

namespace spillway::app::nccl_cuda_test {
namespace {

using Args = std::vector<std::string>;

class CommandsOverNccl : public testing::Test {
 protected:
  void SetUp() override { set_up(2); }
  void set_up(int wanted) {
    use_gpus(wanted);
    const auto gpus = static_cast<int>(query_gpus().gpus.size());
    if (gpus < wanted) GTEST_SKIP() << "needs " << wanted << (wanted == 1 ? " GPU" : " GPUs") << ", there are " << gpus;
    if (const std::string problem = parallel::nccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
    std::string words;
    u32 state = 1;
    for (int i = 0; i < 150; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    text_ = folder_.write("text.txt", words);
    const std::string config = folder_.write(
        "config.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2})");
    model_ = std::filesystem::path(config).parent_path().string();
  }
  void TearDown() override { ::unsetenv("SPILLWAY_EMULATED_GPUS"); }

  static void use_gpus(int emulated) { ::setenv("SPILLWAY_EMULATED_GPUS", std::to_string(emulated).c_str(), 1); }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  Args flags(const std::string& out, const std::string& communicator, const Args& more) const {
    Args all = {"--model",
                model_,
                "--from-scratch",
                "--data",
                text_,
                "--device",
                "cuda",
                "--precision",
                "fp32",
                "--sequence-length",
                "4",
                "--threads",
                "1",
                "--device-memory",
                "64MiB",
                "--host-memory",
                "64MiB",
                "--steps",
                "2",
                "--lr-schedule",
                "constant",
                "--warmup-steps",
                "1",
                "--out",
                at(out),
                "--communicator",
                communicator};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static void expect_all_well(const std::vector<Outcome>& ranks, const std::string& says) {
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.err;
    EXPECT_NE(ranks[0].err.find(says), std::string::npos) << ranks[0].err;
  }

  TemporaryFolder folder_;
  std::string text_, model_;
};

constexpr const char *kOverNccl = "GPUs communicate over NCCL", *kThroughHost = "GPUs communicate through host memory";

TEST_F(CommandsOverNccl, TrainGivesTheNumbersAndStateOfHostMemory) {
  expect_all_well(train_on(2, flags("nccl", "nccl", {"--zero-stage", "3"})), kOverNccl);
  expect_all_well(train_on(2, flags("host", "local", {"--zero-stage", "3"})), kThroughHost);
  EXPECT_EQ(numbers_in(at("nccl")), numbers_in(at("host")));
  EXPECT_TRUE(state_in(at("nccl"), 2) == state_in(at("host"), 2));
}

TEST_F(CommandsOverNccl, AutoTakesItWhereEachRankHasAGpu) {
  expect_all_well(train_on(2, flags("a", "auto", {"--pipeline-stages", "2"})), kOverNccl);
  const auto evaluated = [&](const std::string& communicator) {
    return run_on(2, Command::evaluate,
                  {"--model", at("a"), "--data", text_, "--sequence-length", "16", "--device", "cuda", "--precision", "fp32",
                   "--device-memory", "64MiB", "--zero-stage", "3", "--communicator", communicator});
  };
  const auto over_nccl = evaluated("auto"), through_host = evaluated("local");
  expect_all_well(over_nccl, kOverNccl);
  EXPECT_EQ(over_nccl[0].out, through_host[0].out);
}

// Sets environment variables of the test process in place of those that a launcher gives a rank's process.
class RankOfSeveral : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"}) ::unsetenv(name);
  }
  static std::string value(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "unset";
  }
  // Returns what the last of `ranks` ranks prints when it begins.
  static std::string begin(int ranks, const std::string& device = "cuda", const std::string& communicator = "auto") {
    std::ostringstream out, err;
    RanksConfig config;
    config.ranks = ranks, config.device = device, config.communicator = communicator;
    Console console(out, err);
    keep_nccl_from_hanging(config, {.name = "torchrun", .ranks = ranks, .local_ranks = ranks, .local_rank = ranks - 1}, console);
    return err.str();
  }
};

TEST_F(RankOfSeveral, HasKernelsLoadedAtTheStartAndAQueueForEachLane) {
  for (const auto& [ranks, device, communicator] :
       {std::tuple{1, "cuda", "auto"}, std::tuple{2, "cpu", "auto"}, std::tuple{2, "cuda", "mpi"}}) {
    EXPECT_EQ(begin(ranks, device, communicator), "");
    EXPECT_EQ(value("CUDA_MODULE_LOADING"), "unset") << "it costs time and memory, and nothing can hang here";
  }
  EXPECT_EQ(begin(2), "");
  EXPECT_EQ(value("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_EQ(value("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

TEST_F(RankOfSeveral, LeavesWhatTheUserSaysAndWarnsOfQueuesThatWaitForEachOther) {
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  const std::string said = begin(2);
  EXPECT_NE(said.find("CUDA_DEVICE_MAX_CONNECTIONS=1"), std::string::npos) << said;
  EXPECT_EQ(value("CUDA_MODULE_LOADING"), "LAZY");
  EXPECT_EQ(value("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  EXPECT_NE(begin(2).find("CUDA_DEVICE_MAX_CONNECTIONS=8"), std::string::npos) << "a rank has nine queues";
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
  EXPECT_EQ(begin(2), "");
}

TEST(NcclMemory, IsThatOfThePairsThatTalk) {
  const auto of = [](i64 ranks, i64 stages) {
    RanksConfig config;
    config.ranks = ranks, config.pipeline_stages = stages;
    return nccl_memory(config, 1000, 1);
  };
  EXPECT_EQ(of(64, 1), 1063);
  EXPECT_EQ(of(64, 8), 1007 + 4 * 1001) << "seven data-parallel ranks, and two neighbours each way";
  EXPECT_EQ(of(2, 2), 2 * 1001);
}

#ifdef NCCL_EMULATED
using CommandsOverNcclDeathTest = CommandsOverNccl;

// Ranks are started as by srun or torchrun, so no supervisor would end a rank that hangs. It must end itself, with exit status 6.
TEST_F(CommandsOverNcclDeathTest, ARankWhoseGpuHangsEndsWithSix) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto train = [&] {
    emulated_cuda::block_nccl_abort(true);
    emulated_cuda::fail("ncclSend", 9, cudaErrorLaunchFailure);  // the first sends open connections and try them, so a later send fails
    train_on(2, flags("hangs", "nccl", {"--zero-stage", "3", "--timeout", "2s"}));
    std::_Exit(0);
  };
  EXPECT_EXIT(train(), testing::ExitedWithCode(6), "expected NCCL to abort the communicator of the data-parallel ranks within 2");
}
#endif

class CommandsOnOneGpu : public CommandsOverNccl {
  void SetUp() override { set_up(1); }
};

TEST_F(CommandsOnOneGpu, RanksThatShareItMeetThroughHostMemory) {
  if (query_gpus().gpus.size() != 1) GTEST_SKIP() << "needs one GPU alone, not 2 or more GPUs";
  expect_all_well(train_on(2, flags("a", "auto", {})), "GPUs communicate through host memory: several ranks share cuda:0");
  const auto refused = train_on(2, flags("b", "nccl", {}));
  for (const Outcome& rank : refused) EXPECT_EQ(rank.status, 2);
  EXPECT_NE(refused[0].err.find("[--communicator] expected GPUs that can communicate over NCCL for nccl, got: several ranks share cuda:0"),
            std::string::npos)
      << refused[0].err;
}

}  // namespace
}  // namespace spillway::app::nccl_cuda_test
