// Tests what new users try in their first minutes. Each of these cases was once refused, not answered, or answered wrongly.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/e2e/support_program.h"

namespace spillway::test::first_minutes_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct FirstMinutes : testing::Test {
  Workplace at;
  FirstMinutes() { at.write_text("text.txt", 60000); }

  json parsed(const Finished& f) const {
    const json all = json::parse(f.out, nullptr, false);
    EXPECT_FALSE(all.is_discarded()) << f.out << f.err;
    return all;
  }
};
using FirstMinutesMore = FirstMinutes;

// Shows that bytes that are not UTF-8 may occur in a path, a prompt, a pattern and the text itself.
TEST_F(FirstMinutes, AnyBytesGoThrough) {
  const std::string odd = "caf\xe9";
  at.write(odd + ".txt", at.read("text.txt") + odd);
  Args args = small_run(odd, 3, "64MiB", {"--freeze", odd + "*", "--prompt", odd, "--sample-every", "2"});
  *(std::find(args.begin(), args.end(), "--data") + 1) = odd + ".txt";
  Finished f = at.spillway(args);
  EXPECT_EQ(f.status, 2) << "no parameter is called so" << f.err;
  EXPECT_FALSE(mentions(f.err, "[bug]")) << f.err;
  args.erase(std::find(args.begin(), args.end(), "--freeze"), std::find(args.begin(), args.end(), "--prompt"));
  f = at.spillway(args);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(at.read(odd + "/config.json"), "\"bytes\": \"636166e92e747874\"")) << at.read(odd + "/config.json");
  EXPECT_EQ(at.spillway(args).status, 0) << "the same command finds its run";
  args.insert(args.end(), {"--json", "--ranks", "2", "--global-batch-size", "2"});
  *(std::find(args.begin(), args.end(), "--out") + 1) = odd + "-ranks";
  f = at.spillway(args);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(parsed(f)["step"], 3);
  f = at.spillway({"generate", "--model", odd, "--prompt", odd, "--max-tokens", "3", "--json"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(parsed(f)["tokens"].size(), 3u);
  // A config.json that was written with bytes that are not UTF-8 can be read again.
  at.write("again.json", at.read(odd + "/config.json"));
  f = at.spillway({"train", "--config", "again.json", "--out", "other", "--steps", "1"});
  EXPECT_EQ(f.status, 0) << f.err;
}

TEST_F(FirstMinutes, JsonEverywhere) {
  at.write("wishes.json", R"({"json": true, "model": "gpt2-tiny"})");
  ASSERT_EQ(at.spillway(small_run("run", 2, "64MiB", {})).status, 0);
  EXPECT_EQ(parsed(at.spillway(small_run("run", 2, "64MiB", {"--json"})))["finished"], true);
  EXPECT_EQ(parsed(at.spillway({"export", "run", "--out", "exported", "--json"}))["files"], 1);
  EXPECT_TRUE(mentions(parsed(at.spillway({"slurm", "--model", "gpt2-tiny", "--data", "text.txt", "--json"}))["script"].get<std::string>(),
                       "srun"));
  for (const auto& [args, status] :
       {std::pair(Args{"train", "--json", "--model", "gpt2-tiny"}, 2),
        {Args{"train", "--config", "wishes.json"}, 2},
        {Args{"evaluate", "--json", "--model", "run", "--data", "none.txt"}, 4},
        {Args{"plan", "--json", "--model", "gpt2-124m", "--device-memory", "1MiB", "--host-memory", "1MiB"}, 3}}) {
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, status) << f.err;
    const json error = parsed(f)["error"];
    EXPECT_EQ(error["status"], status);
    EXPECT_TRUE(mentions(f.err, error["message"].get<std::string>().substr(0, 20))) << f.err;
  }
}

TEST_F(FirstMinutes, PlanBelievesSizesAndSaysWhatTheyComeTo) {
  const Finished f = at.spillway({"plan", "--model", "gpt2-124m", "--data", "text.txt", "--device-memory", "80GiB", "--host-memory",
                                  "900GiB", "--nvme", "no/such/disk:200GiB", "--place-optimizer", "nvme", "--endurance", "600TBW"});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* piece :
       {"200.0 GiB", "a step is 1 sequences of 1024 tokens", " steps take ", "written to nvme: ", "rated writes (600TBW a drive) in "})
    EXPECT_TRUE(mentions(f.out, piece)) << piece << " in\n" << f.out;
}

TEST_F(FirstMinutes, BinaryDataAreQuestioned) {
  EXPECT_FALSE(mentions(at.spillway(small_run("run", 1, "64MiB", {})).err, "look like text"));
  std::string bytes;
  for (int k = 0; k < 60000; ++k) bytes += static_cast<char>(k * 7919 >> 3);
  at.write("text.txt", bytes);
  const Finished f = at.spillway(small_run("other", 1, "64MiB", {}));
  EXPECT_EQ(f.status, 0) << "a question, no refusal";
  EXPECT_TRUE(mentions(f.err, "warning: text.txt does not look like text: ")) << f.err;
}

TEST_F(FirstMinutes, TmpfsIsScratchWithoutBudgets) {
  fs::create_directory(at / "memory");
  if (::mount("tmpfs", (at / "memory").c_str(), "tmpfs", 0, "size=256m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  Args args = small_run("run", 2, "64MiB", {"--nvme", "memory", "--place-optimizer", "nvme"});
  for (const char* flag : {"--device-memory", "--host-memory"}) {
    const auto found = std::find(args.begin(), args.end(), flag);
    args.erase(found, found + 2);
  }
  const Finished f = at.spillway(args);
  ::umount2((at / "memory").c_str(), MNT_DETACH);
  EXPECT_EQ(f.status, 0) << f.err;
}

TEST_F(FirstMinutes, TooManyThreadsAreNamed) {
  const Finished f = at.spillway(small_run("run", 2, "64MiB", {"--json"}));
  EXPECT_FALSE(mentions(f.err, "threads that share a core")) << f.err;
  Args args = small_run("other", 2, "64MiB", {});
  const std::string more = std::to_string(std::thread::hardware_concurrency() + 1);
  *(std::find(args.begin(), args.end(), "--threads") + 1) = more;
  EXPECT_TRUE(mentions(at.spillway(args).err, "warning: --threads " + more + " is too many for ")) << "yellow, with the cores there are";
}

TEST_F(FirstMinutesMore, MoreStepsBendTheCurveAloudOrNotAtAll) {
  const auto to = [&](const std::string& out, int steps, const Args& more = {}) {
    Args args = small_run(out, steps, "64MiB", {"--warmup-steps", "1"});
    args.insert(args.end(), more.begin(), more.end());
    return at.spillway(args);
  };
  const auto rates = [&](const std::string& out) {
    std::vector<double> all;
    for (const std::string& line : at.metrics(out)) all.push_back(json::parse(line)["lr"]);
    return all;
  };
  for (const char* out : {"bent", "kept"}) ASSERT_EQ(to(out, 6).status, 0);
  const std::vector<double> before = rates("kept");
  Finished f = to("bent", 10);
  EXPECT_TRUE(mentions(f.err, "--steps was 6 and is now 10: ")) << f.err;
  f = to("kept", 8, {"--keep-schedule"});
  EXPECT_TRUE(mentions(f.err, "spans 6 steps")) << f.err;
  f = to("kept", 10, {"--keep-schedule"});
  EXPECT_EQ(f.status, 0) << f.err;
  ASSERT_EQ(rates("kept").size(), 10u);
  for (size_t step = 0; step < 10; ++step) EXPECT_EQ(rates("kept")[step], before[std::min<size_t>(step, 5)]) << step;
  EXPECT_GT(rates("bent")[6], before[5]);
}

TEST_F(FirstMinutes, TheTimeLimitCountsFromTheStart) {
  // A time limit of 59 minutes has passed for an allocation that began an hour ago.
  ::setenv("SLURM_JOB_START_TIME", std::to_string(std::time(nullptr) - 3600).c_str(), 1);
  const Finished f = at.spillway(small_run("run", 100'000, "64MiB", {"--time-limit", "59m"}));
  ::unsetenv("SLURM_JOB_START_TIME");
  EXPECT_EQ(f.status, 75) << f.err;
  EXPECT_TRUE(mentions(f.err, "step 1 was not started")) << f.err;
  EXPECT_TRUE(at.metrics("run").empty());
}

TEST_F(FirstMinutes, TheSnapshotIsTheOneThatMainNames) {
  ASSERT_EQ(at.spillway(small_run("run", 1, "64MiB", {})).status, 0);
  const fs::path model = at / "hub/models--org--name";
  for (const char* commit : {"aaaa", "bbbb"}) {
    ASSERT_EQ(at.spillway({"export", "run", "--out", (model / "snapshots" / commit).string()}).status, 0);
  }
  fs::remove(model / "snapshots/aaaa/model.safetensors");
  const Args evaluate = {"evaluate", "--model", "org/name", "--data", "short.txt", "--tokenizer", "bytes", "--sequence-length", "16"};
  at.write_text("short.txt", 500);
  at.before_start([hub = (at / "hub").string()] { ::setenv("HF_HUB_CACHE", hub.c_str(), 1); });
  const Finished two = at.spillway(evaluate);
  EXPECT_EQ(two.status, 2) << two.err;
  EXPECT_TRUE(mentions(two.err, "2 snapshots")) << two.err;
  fs::create_directory(model / "refs");
  at.write("hub/models--org--name/refs/main", "bbbb\n");
  const Finished f = at.spillway(evaluate);
  EXPECT_EQ(f.status, 0) << f.err;
}

TEST_F(FirstMinutesMore, SeveralWordsOfBench) {
  at.before_start([cache = (at / "cache").string()] { ::setenv("XDG_CACHE_HOME", cache.c_str(), 1); });
  const Finished f = at.spillway({"bench", "memory", "disk", "--nvme", "scratch"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(mentions(f.out, "memory.axpy") && mentions(f.out, "disk.read") && !mentions(f.out, "matmul")) << f.out;
  EXPECT_EQ(at.spillway({"bench", "memory", "frobnicate"}).status, 2);
  EXPECT_TRUE(mentions(at.spillway({"export", "x", "--out", "y", "--precision", "bf16"}).err, "unknown flag of export"))
      << "it never read them";
}

TEST_F(FirstMinutesMore, SelftestLeavesNothingAtCtrlC) {
  fs::create_directory(at / "tmp");
  at.before_start([tmp = (at / "tmp").string()] { ::setenv("TMPDIR", tmp.c_str(), 1); });
  const Finished f = at.spillway_until(
      {"selftest"}, [&] { return !fs::is_empty(at / "tmp"); }, SIGINT);
  EXPECT_EQ(f.status, 130) << f.err;
  EXPECT_TRUE(fs::is_empty(at / "tmp"));
}

// Shows that status and metrics agree on the bytes per day after a run resumes with its tensors in other tiers. The traffic of the earlier
// process is not counted.
TEST_F(FirstMinutesMore, StatusIsOfThePlacementThereIsNow) {
  const Args nvme{"--nvme", "scratch", "--place-optimizer", "nvme"};
  Args first = small_run("run", 4, "64MiB", nvme), then = small_run("run", 8, "64MiB", {});
  ASSERT_EQ(at.spillway(first).status, 0);
  json status = parsed(at.spillway({"status", "run", "--json"}));
  EXPECT_GT(status["written_bytes_per_step"]["nvme"].get<double>(), 0);
  EXPECT_EQ(status["nvme_written_bytes"]["per_day"], json::parse(at.metrics("run").back())["nvme_written_per_day"]);
  ASSERT_EQ(at.spillway(then).status, 0);
  status = parsed(at.spillway({"status", "run", "--json"}));
  EXPECT_EQ(status["written_bytes_per_step"]["nvme"], 0);
  EXPECT_EQ(status["nvme_written_bytes"]["per_day"], 0);
}

}  // namespace
}  // namespace spillway::test::first_minutes_test
