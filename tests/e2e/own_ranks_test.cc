// Tests ranks without MPI: started by the program itself, by hand with torchrun's variables, and on two nodes; and what the other ranks do
// when one is killed or stopped at any instant.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "tests/e2e/support_program.h"

namespace spillway::test::own_ranks_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

Args training(const std::string& out, const Args& more = {}, int steps = 120) {
  Args args = {"train",
               "--model",
               "gpt2-tiny",
               "--data",
               "text.txt",
               "--sequence-length",
               "64",
               "--steps",
               std::to_string(steps),
               "--out",
               out,
               "--device-memory",
               "64MiB",
               "--host-memory",
               "64MiB",
               "--checkpoint-every",
               "20",
               "--quiet",
               "--threads",
               "1",
               "--learning-rate",
               "1e-3"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string in_one_line(const Args& args) {
  std::string line = SPILLWAY_PROGRAM;
  for (const std::string& word : args) line += " " + word;
  return line;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<pid_t> children_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children");
  std::vector<pid_t> children;
  for (pid_t one = 0; file >> one;) children.push_back(one);
  return children;
}

struct OwnRanks : testing::Test {
  const Workplace at;
  OwnRanks() { at.write_text("text.txt", 60000); }

  // Returns the weights of the last checkpoint.
  std::string weights(const std::string& out) const {
    fs::path last;
    for (const auto& one : fs::directory_iterator(at / out / "checkpoints")) last = std::max(last, one.path());
    std::string all;
    for (const auto& one : fs::directory_iterator(last)) {
      if (one.path().filename() == "model.safetensors") all = at.read(fs::relative(one.path(), at.path()));
    }
    EXPECT_FALSE(all.empty()) << last;
    return all;
  }
  int shell(const std::string& commands) const {
    const int status = std::system(("cd '" + at.path().string() + "' && { " + commands + "; }").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Sends `signal` to a rank at a random instant and counts it if it arrived before the end. A stopped rank is noticed by a short time-out,
  // a dead one at once.
  void disturb(int signal, const Args& flags, std::mt19937& random, int& disturbed, const std::string& says) {
    const double instant_s = std::uniform_real_distribution(0.0, 0.8)(random);
    const size_t count = std::stoul(flags.at(1)), victim = random() % count;
    const auto begin = Clock::now();
    bool sent = false;
    Args run = flags;
    run.insert(run.end(), {"--timeout", signal == SIGSTOP ? "4s" : "60s"});
    const Finished end = at.spillway_until(
        training("run", run),
        [&] {
          const std::vector<pid_t> ranks = children_of(at.pid());
          if (seconds_since(begin) < instant_s || ranks.size() != count) return false;
          return sent = kill(ranks[victim], signal) == 0;
        },
        0);
    if (!sent || end.status == 0) {
      EXPECT_EQ(end.status, 0) << end.err;
      return;
    }
    EXPECT_EQ(end.status, 6) << end.err;
    EXPECT_TRUE(mentions(end.err, "[ranks] rank " + std::to_string(victim) + " on host ")) << end.err;
    EXPECT_TRUE(mentions(end.err, says)) << end.err;
    EXPECT_EQ(end.err.find("spillway train: "), end.err.rfind("spillway train: ")) << end.err;
    EXPECT_LT(seconds_since(begin), instant_s + 30);
    ++disturbed;
  }

  void disturb_often(int signal, int times, const Args& flags, const std::string& says) {
    std::mt19937 random(static_cast<unsigned>(signal + times));
    ASSERT_EQ(at.spillway(training("undisturbed", flags)).status, 0);
    int disturbed = 0;
    for (int tries = 0; disturbed < times && tries < 20 * times; ++tries) {
      if (fs::exists(at / "run" / "checkpoints" / "step-00000120")) fs::remove_all(at / "run");
      disturb(signal, flags, random, disturbed, says);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_EQ(disturbed, times);
    const Finished end = at.spillway(training("run", flags));
    ASSERT_EQ(end.status, 0) << end.err;
    EXPECT_EQ(weights("run"), weights("undisturbed"));
    EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("undisturbed")));
  }
};
using OwnRanksMore = OwnRanks;

using OwnRanksRelease = OwnRanks;

// Shows that every way to start the ranks gives bitwise the same results.
TEST_F(OwnRanksRelease, StartedByThemselvesByHandAndByFile) {
  const Finished own = at.spillway(training("own", {"--ranks", "2"}));
  ASSERT_EQ(own.status, 0) << own.err;
  const auto by_hand = [&](const std::string& out, const std::string& variables, const Args& more) {
    const std::string line = in_one_line(training(out, more));
    return shell("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 " + variables + "; RANK=1 LOCAL_RANK=1 " + line +
                 " 2> one.txt & RANK=0 LOCAL_RANK=0 " + line + " 2> zero.txt && wait $!");
  };
  ASSERT_EQ(by_hand("hand", "MASTER_ADDR=localhost MASTER_PORT=" + std::to_string(20000 + getpid() % 10000), {}), 0)
      << at.read("zero.txt") << at.read("one.txt");
  ASSERT_EQ(by_hand("file", "MEETS=1", {"--rendezvous", "file:meeting"}), 0) << at.read("zero.txt") << at.read("one.txt");
  EXPECT_EQ(numbers_of(at.metrics("hand")), numbers_of(at.metrics("own")));
  EXPECT_EQ(numbers_of(at.metrics("file")), numbers_of(at.metrics("own")));
  EXPECT_EQ(weights("hand"), weights("own"));
  EXPECT_EQ(weights("file"), weights("own"));
}

TEST_F(OwnRanks, WhoDoesNotComeIsNamed) {
  const std::string line = in_one_line(training("run", {"--rendezvous", "file:meeting", "--timeout", "1s"}));
  EXPECT_EQ(shell("RANK=0 LOCAL_RANK=0 WORLD_SIZE=3 " + line + " 2> zero.txt"), 6);
  EXPECT_TRUE(mentions(at.read("zero.txt"), "got no ranks 1, 2 within")) << at.read("zero.txt");
  EXPECT_EQ(shell("RANK=1 LOCAL_RANK=0 WORLD_SIZE=3 " + line + " 2> one.txt"), 6);
  EXPECT_TRUE(mentions(at.read("one.txt"), "expected rank 0 at file:meeting")) << at.read("one.txt");
}

TEST_F(OwnRanks, ErrorOfAllIsSaidOnce) {
  const Finished end = at.spillway(training("run", {"--ranks", "3", "--data", "missing.txt"}));
  EXPECT_EQ(end.status, 4);
  EXPECT_TRUE(mentions(end.err, "spillway train: [data] missing.txt is not there")) << end.err;
  EXPECT_EQ(end.err.find("missing.txt"), end.err.rfind("missing.txt")) << end.err;
}

// Sends the signal to the parent process or to one rank. The runs have so many steps that only a signal ends them; the number of steps
// changes no result.
TEST_F(OwnRanksMore, SignalSavesAndTheSameCommandGoesOn) {
  const Args endless = {"--ranks", "2", "--lr-schedule", "constant", "--warmup-steps", "7"};
  for (const auto& [signal, to_one] : {std::pair(SIGTERM, false), {SIGINT, false}, {SIGUSR1, true}}) {
    const auto lines = at.metrics("run").size();
    bool told = false;
    const auto trains = [&] {
      if (at.metrics("run").size() <= lines + 3) return false;
      if (!to_one) return true;
      if (!told) kill(children_of(at.pid()).back(), SIGUSR1);
      told = true;
      return false;
    };
    const Finished end = at.spillway_until(training("run", endless, 1'000'000), trains, signal);
    EXPECT_EQ(end.status, 75) << end.err;
  }
  const int steps = static_cast<int>(at.metrics("run").size()) + 3;
  const Finished end = at.spillway(training("run", endless, steps));
  ASSERT_EQ(end.status, 0) << end.err;
  ASSERT_EQ(at.spillway(training("undisturbed", endless, steps)).status, 0);
  EXPECT_EQ(weights("run"), weights("undisturbed"));
  EXPECT_EQ(numbers_of(at.metrics("run")), numbers_of(at.metrics("undisturbed")));
}

const Args kTwoRanks = {"--ranks", "2"};
TEST_F(OwnRanksRelease, KilledRankEndsAllAndTheSameCommandGoesOn) { disturb_often(SIGKILL, 1, kTwoRanks, "(SIGKILL)"); }
TEST_F(OwnRanksRelease, StoppedRankEndsAllAndTheSameCommandGoesOn) { disturb_often(SIGSTOP, 1, kTwoRanks, "was stopped (SIGSTOP)"); }

const Args kTwoPipelines = {
    "--ranks", "4",   "--pipeline-stages", "2", "--gradient-accumulation-steps", "2", "--zero-stage", "3", "--place-optimizer", "nvme",
    "--nvme",  "nvme"};
struct SoakOwnRanks : OwnRanks {};
TEST_F(SoakOwnRanks, KilledTwentyTimes) { disturb_often(SIGKILL, 20, kTwoPipelines, "(SIGKILL)"); }
TEST_F(SoakOwnRanks, StoppedTwentyTimes) { disturb_often(SIGSTOP, 20, kTwoPipelines, "was stopped (SIGSTOP)"); }

// Trains on two nodes that share nothing but files. Their rendezvous is given by variables and by --rendezvous.
TEST_F(OwnRanksRelease, TwoNodesOverTcp) {
  constexpr int kSteps = 40;
  ASSERT_EQ(at.spillway(training("own", {"--ranks", "2"}, kSteps)).status, 0);
  for (const auto& [out, more] : {std::pair("variables", Args{}), std::pair("tcp", Args{"--rendezvous", "tcp:10.213.7.1:29512"})}) {
    const std::string line = in_one_line(training(out, more, kSteps));
    const std::string program = SPILLWAY_PROGRAM;
    const int status =
        shell(SPILLWAY_SOURCE_DIR "/tests/e2e/two_nodes.sh " + program + " . 1 " + line.substr(program.size()) + " > said.txt");
    if (status == 77) GTEST_SKIP() << at.read("said.txt");
    ASSERT_EQ(status, 0) << out << ": " << at.read("rank0.txt") << at.read("rank1.txt");
    EXPECT_EQ(numbers_of(at.metrics(out)), numbers_of(at.metrics("own"))) << out;
    EXPECT_EQ(weights(out), weights("own")) << out;
  }
}

}  // namespace
}  // namespace spillway::test::own_ranks_test
