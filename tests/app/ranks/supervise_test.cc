// Tests the supervision of ranks. The test program starts copies of itself as ranks. A
// copy does what an environment variable tells it, and exits before any test begins.
#include "app/ranks/supervise.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/app/support_app.h"
#include "trainer/node/cores.h"
#include "trainer/ranks/join.h"
#include "trainer/ranks/rank_report.h"

namespace spillway::app::supervise_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> pieces;
  std::istringstream stream(text);
  for (std::string piece; std::getline(stream, piece, at);) pieces.push_back(piece);
  return pieces;
}

sigset_t listened_to() {
  sigset_t set;
  sigemptyset(&set), sigaddset(&set, SIGTERM), sigaddset(&set, SIGUSR1);
  return set;
}

// Carries out one command of a rank's script, such as "exit:3". The command "exit" does not return.
void act(const std::string& word) {
  const std::vector<std::string> said = split(word, ':');
  const auto number = [&] { return std::atoi(said.at(1).c_str()); };
  if (said[0] == "step") report_step(number());
  if (said[0] == "say") report_failure({ErrorCode::io, said.at(1)});
  if (said[0] == "raise") raise(number());
  if (said[0] == "tell_parent") kill(getppid(), number());
  if (said[0] == "sleep_ms") std::this_thread::sleep_for(std::chrono::milliseconds(number()));
  if (said[0] == "deaf") signal(SIGTERM, SIG_IGN);
  if (said[0] == "append") std::ofstream(said.at(1), std::ios::trunc) << said.at(2);
  if (said[0] == "meet") {
    const auto end = join_ranks(detect_launcher(Host{}), 30);
    end->barrier().wait();
  }
  if (said[0] == "block") {
    const sigset_t set = listened_to();
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  if (said[0] == "listen") {
    const sigset_t set = listened_to();
    int got = 0;
    sigwait(&set, &got);
    std::_Exit(got == SIGTERM ? 75 : 3);
  }
  if (said[0] == "hides_token" && std::string(std::getenv("SPILLWAY_MEETING")).find(std::getenv("SPILLWAY_TOKEN")) != std::string::npos)
    std::_Exit(9);
  if (said[0] == "exit") std::_Exit(number());
}

// Carries out the rank's script before main() if this process is a rank. '|' separates the scripts of ranks, spaces separate commands.
const bool acted = [] {
  const char *text = std::getenv("SPILLWAY_TEST_ACTS"), *rank = std::getenv("SPILLWAY_RANK");
  if (text == nullptr || rank == nullptr) return false;
  for (const std::string& word : split(split(text, '|').at(std::stoul(rank)), ' ')) act(word);
  std::_Exit(0);
}();

struct Ended {
  int status = -1;
  std::string error, warnings;
  double seconds = 0;
};

Ended ranks_that(const std::string& acts, double timeout_s = 60, const Host& host = {}) {
  setenv("SPILLWAY_TEST_ACTS", acts.c_str(), 1);
  std::ostringstream out, err;
  Console console(out, err);
  Ended outcome;
  const auto begin = std::chrono::steady_clock::now();
  try {
    outcome.status = supervise({static_cast<int>(split(acts, '|').size()), {}, timeout_s, 0.5}, console, host);
  } catch (const Error& error) {
    outcome.status = error.exit_status(), outcome.error = error.what();
  }
  unsetenv("SPILLWAY_TEST_ACTS");
  outcome.warnings = err.str();
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

TEST(Supervise, RanksMeetAndTheirStatusIsThatOfTheWhole) {
  EXPECT_EQ(ranks_that("meet exit:0|meet exit:0|meet exit:0").status, 0);
  EXPECT_EQ(ranks_that("exit:75|exit:75").status, 75);
}

// Every user can see the names of abstract sockets, so the name of the ranks' rendezvous must not contain their secret.
TEST(Supervise, TheNameAtWhichRanksMeetDoesNotTellTheirSecret) { EXPECT_EQ(ranks_that("hides_token exit:0|hides_token exit:0").status, 0); }

TEST(Supervise, ErrorOfARankIsSaidOnce) {
  const Ended agreed = ranks_that("say:[disk]_is_full exit:3|exit:3|exit:3");
  EXPECT_EQ(agreed.status, 3);
  EXPECT_EQ(agreed.error, "[disk]_is_full");
  // If one rank reports an error and the others only report that they miss this rank, the error is printed, whoever reports first.
  const Ended own = ranks_that("say:misses_rank_1 exit:6|sleep_ms:100 say:[disk]_is_bad exit:5|say:misses_rank_1 exit:6");
  EXPECT_EQ(own.status, 5);
  EXPECT_EQ(own.error, "[disk]_is_bad");
  const Ended hung = ranks_that("say:misses_rank_1 exit:6|sleep_ms:60000");
  EXPECT_EQ(hung.status, 6);
  EXPECT_EQ(hung.error, "misses_rank_1");
  EXPECT_LT(hung.seconds, 30);
}

TEST(Supervise, DeadRankIsNamedWithWhatItDid) {
  const Ended outcome = ranks_that("sleep_ms:100 say:misses_rank_1 exit:6|step:12 raise:6|sleep_ms:60000");
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("rank 1 on host"), HasSubstr("signal 6 (SIGABRT)"), HasSubstr("training, its last step was 12"),
                    HasSubstr("the same command again"), Not(HasSubstr("misses"))));
  EXPECT_THAT(ranks_that("raise:9|sleep_ms:60000").error,
              AllOf(HasSubstr("rank 0 on host"), HasSubstr("(SIGKILL)"), HasSubstr("starting")));
}

TEST(Supervise, StatusWithoutAWordIsNamed) {
  const Ended outcome = ranks_that("sleep_ms:60000|exit:9");
  EXPECT_EQ(outcome.status, 9);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 1"), HasSubstr("exit status 9"), HasSubstr("without a message")));
}

TEST(Supervise, StoppedRankIsNamedAtOnceAndEndsAllAfterTheTimeOut) {
  const Ended outcome = ranks_that("sleep_ms:60000|step:3 raise:19", 1);
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 1"), HasSubstr("was stopped (SIGSTOP) and did not continue within --timeout 1.0 s"),
                                   HasSubstr("was 3")));
  EXPECT_THAT(outcome.warnings, AllOf(HasSubstr("rank 1"), HasSubstr("was stopped"), HasSubstr("kill -CONT")));
  EXPECT_LT(outcome.seconds, 30);
}

// A peer of a stopped rank may time out before the supervisor does. The supervisor must still name the stopped rank.
TEST(Supervise, StoppedRankIsNamedThoughAnotherOneGivesUpFirst) {
  const Ended outcome = ranks_that("meet raise:19|meet sleep_ms:3000 say:misses_rank_0 exit:6");
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 0"), HasSubstr("was stopped (SIGSTOP)"), Not(HasSubstr("misses"))));
  EXPECT_LT(outcome.seconds, 30);
}

TEST(Supervise, OutOfMemoryKillIsTold) {
  FakeHost fake;
  fake.file("/proc/self/cgroup", "0::/job\n");
  fake.file("/sys/fs/cgroup/job/memory.max", "1073741824\n");
  fake.file("/sys/fs/cgroup/job/memory.current", "536870912\n");
  fake.file("/sys/fs/cgroup/job/memory.stat", "inactive_file 0\n");
  fake.file("/sys/fs/cgroup/job/memory.events", "oom 1\noom_kill 1\n");
  const Host host = fake.host();
  EXPECT_THAT(ranks_that("exit:0|raise:9", 60, host).error, HasSubstr("by the kernel because memory ran out"));
  const std::string counted = "append:" + (host.root / "sys/fs/cgroup/job/memory.events").string() + ":oom_kill\t2";
  EXPECT_THAT(ranks_that("exit:0|" + counted + " raise:9", 60, host).error,
              AllOf(HasSubstr("out-of-memory kill"), HasSubstr("limit 1.00 GiB"), HasSubstr("512.0 MiB")));
}

TEST(Supervise, SignalsAreHandedOn) {
  EXPECT_EQ(ranks_that("block meet listen|block meet tell_parent:15 listen").status, 75);
  EXPECT_EQ(ranks_that("block meet listen|block meet tell_parent:2 listen").status, 75);
  EXPECT_EQ(ranks_that("block meet listen|block meet tell_parent:10 listen").status, 3);
  // The supervisor gets a signal before its ranks install a handler. The forwarded signal then ends the ranks.
  EXPECT_EQ(ranks_that("sleep_ms:60000|tell_parent:15 sleep_ms:60000").status, 128 + SIGTERM);
}

TEST(Supervise, SecondInterruptLeavesAtOnce) {
  std::string often;
  for (int k = 0; k < 100; ++k) often += "tell_parent:2 sleep_ms:100 ";
  const Ended outcome = ranks_that("deaf sleep_ms:60000|deaf " + often + "sleep_ms:60000");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.error, "");
  EXPECT_LT(outcome.seconds, 30);
}

TEST(Supervise, ProgramThatIsNotThere) {
  setenv("SPILLWAY_PROGRAM", "/nowhere/spillway", 1);
  const Ended outcome = ranks_that("exit:0|exit:0");
  unsetenv("SPILLWAY_PROGRAM");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("/nowhere/spillway"), HasSubstr("No such file")));
}

// Returns the cores of a new thread that was bound to a rank's share. The test's own thread stays unbound.
std::vector<int> bound_cores(const std::string& bind, const Launcher& launcher, const Host& host = Host()) {
  std::vector<int> cores;
  std::thread([&] {
    bind_to_share(bind, launcher, host, {});
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }).join();
  return cores;
}

TEST(Cores, RankIsBoundToItsShareUnlessItsLauncherBinds) {
  const Launcher own{.name = "spillway", .ranks = 3, .rank = 1, .local_ranks = 3, .local_rank = 1};
  Launcher srun = own, alone = own;
  srun.name = "srun", alone.local_ranks = 1;
  const std::vector<int> all = bound_cores("none", own), mine = share_of_cores(Host(), all, 1, 3);
  EXPECT_EQ(bound_cores("auto", own), mine);
  EXPECT_EQ(bound_cores("auto", srun), all);
  EXPECT_EQ(bound_cores("cores", srun), mine);
  EXPECT_EQ(bound_cores("cores", alone), all);
}

TEST(Cores, RankStaysOnTheCpusOfTheEnvironment) {
  const Launcher own{.name = "spillway", .ranks = 3, .rank = 1, .local_ranks = 3, .local_rank = 1};
  Launcher srun = own;
  srun.name = "srun";
  const auto host_with = [](const std::string& name, const std::string& value) {
    return Host{"/", [=](const char* asked) { return asked == name ? std::optional(value) : std::nullopt; }};
  };
  const std::vector<int> all = bound_cores("none", own);
  const std::vector<int> last = {all.back()};
  const Host listed = host_with("GOMP_CPU_AFFINITY", std::to_string(all.back()));
  for (const char* bind : {"auto", "none", "cores"}) {
    EXPECT_EQ(bound_cores(bind, own, listed), last) << bind;
    EXPECT_EQ(bound_cores(bind, srun, listed), last) << bind;
  }
  const Host unbound = host_with("OMP_PROC_BIND", "false");
  EXPECT_EQ(bound_cores("auto", own, unbound), all);
  EXPECT_EQ(bound_cores("cores", own, unbound), share_of_cores(Host(), all, 1, 3)) << "--bind is given";
}

TEST(MeetingPlace, FollowsTheLauncher) {
  const Launcher torchrun{.name = "torchrun", .ranks = 2};
  FakeHost fake, store, half;
  fake.env("MASTER_ADDR", "n1").env("MASTER_PORT", "29500");
  EXPECT_EQ(meeting_place(torchrun, "auto", fake.host()), "tcp:n1:29500");
  EXPECT_EQ(meeting_place(torchrun, "file:/x", fake.host()), "file:/x");
  // With a bare srun, ranks meet at a local socket if all are on one node, otherwise
  // on the first node of the job step. MPI is used only if srun provides PMIx.
  FakeHost step, steps, pmix;
  step.env("SLURM_JOB_ID", "7").env("SLURM_STEP_ID", "0").env("SLURM_STEP_NUM_NODES", "1");
  EXPECT_EQ(meeting_place({.name = "srun"}, "auto", step.host()), "unix:spillway-slurm-7.0");
  steps.env("SLURM_JOB_ID", "7").env("SLURM_STEP_NUM_NODES", "3").env("SLURM_STEP_NODELIST", "gpu[03-05,9],b1");
  EXPECT_TRUE(meeting_place({.name = "srun"}, "auto", steps.host()).starts_with("tcp:gpu03:2"));
  EXPECT_EQ(meeting_place({.name = "srun"}, "auto", pmix.env("PMIX_RANK", "0").host()), "");
  EXPECT_EQ(meeting_place({.name = "srun", .ranks = 2}, "env", fake.host()), "tcp:n1:29500");
  // All ranks are on one node, so a local socket is enough. No other machine can reach it.
  EXPECT_EQ(meeting_place({.name = "torchrun", .ranks = 2, .local_ranks = 2}, "auto", fake.host()), "unix:spillway-torchrun-29500");
  FakeHost own;
  EXPECT_EQ(meeting_place({.name = "spillway"}, "auto", own.env("SPILLWAY_MEETING", "unix:x").host()), "unix:x");
  // torchrun's own store listens on MASTER_PORT, so the ranks use the next port.
  store.env("MASTER_ADDR", "::1").env("MASTER_PORT", "29500").env("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_EQ(meeting_place(torchrun, "auto", store.host()), "tcp:[::1]:29501");
  EXPECT_THROW(meeting_place(torchrun, "auto", half.env("MASTER_ADDR", "n1").host()), Error);
}

std::string why_not_joined(const Launcher& launcher, const Host& host) {
  try {
    join_ranks(launcher, 0.1, "auto", host);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "";
}

// If the rendezvous is on a network, where anyone could connect, ranks authenticate with a shared secret and refuse to start without one.
TEST(MeetingPlace, ThroughANetworkAsksForASecret) {
  const Launcher torchrun{.name = "torchrun", .ranks = 2};
  for (const char* token : {"", "short"}) {
    FakeHost fake;
    fake.env("MASTER_ADDR", "n1").env("MASTER_PORT", "29500").env("SPILLWAY_TOKEN", token);
    EXPECT_THAT(why_not_joined(torchrun, fake.host()),
                AllOf(HasSubstr("export SPILLWAY_TOKEN=$("), HasSubstr("the same value on all nodes"), HasSubstr("before the ranks start"),
                      Not(HasSubstr("torchrun"))));
    fake.env("TORCHELASTIC_RUN_ID", "1");
    EXPECT_THAT(why_not_joined(torchrun, fake.host()), HasSubstr("before torchrun on every node"));
  }
}

}  // namespace
}  // namespace spillway::app::supervise_test
