// Tests that the program computes with as many threads, and on those CPUs, as the environment variables of clusters say.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/support_program.h"

namespace spillway::test::threads_test {
namespace {

namespace fs = std::filesystem;

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  std::vector<int> cpus;
  sched_getaffinity(0, sizeof set, &set);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Returns the lines "Cpus_allowed_list:" of all threads of the process, each once.
std::set<std::string> cpus_of_threads(pid_t process) {
  std::set<std::string> all;
  std::error_code ended;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task", ended)) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Cpus_allowed_list:")) all.insert(line.substr(line.find('\t') + 1));
    }
  }
  return all;
}

// Returns the command line of a training without --threads.
Args training(const std::string& out, int steps) {
  Args args = small_run(out, steps, "64MiB", {});
  const auto flag = std::ranges::find(args, "--threads");
  args.erase(flag, flag + 2);
  return args;
}

struct ThreadsOfTheProgram : testing::Test {
  Workplace at;
  ThreadsOfTheProgram() { at.write_text("text.txt", 60000); }
  void set(const std::vector<std::pair<std::string, std::string>>& variables) {
    at.before_start([=] {
      for (const char* name : {"OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) ::unsetenv(name);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    });
  }
  std::string threads_of_doctor() const {
    for (const auto& one : nlohmann::json::parse(at.spillway({"doctor", "--json"}).out)) {
      if (one["name"] == "threads") return one["text"];
    }
    return "no line";
  }
};

TEST_F(ThreadsOfTheProgram, FollowTheEnvironment) {
  const std::string last = std::to_string(cpus_of_this_thread().back());
  set({{"OMP_NUM_THREADS", "1,2"}, {"GOMP_CPU_AFFINITY", last}});
  EXPECT_EQ(threads_of_doctor(), "1 on CPU " + last + " (OMP_NUM_THREADS=1,2; GOMP_CPU_AFFINITY=" + last + ")");
  std::set<std::string> cpus;
  const auto computing = [&] {
    const bool steps = !at.metrics("run").empty();
    if (steps) cpus = cpus_of_threads(at.pid());
    return steps;
  };
  const Finished run = at.spillway_until(training("run", 1'000'000), computing, SIGINT);
  EXPECT_EQ(run.status, 75) << run.err;
  EXPECT_EQ(cpus, std::set<std::string>{last});
  EXPECT_TRUE(mentions(at.read("run/log.txt"), "threads: 1 on CPU " + last)) << at.read("run/log.txt");
}

TEST_F(ThreadsOfTheProgram, DoNotChangeNumbers) {
  if (cpus_of_this_thread().size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  for (const char* threads : {"1", "2"}) {
    set({{"OMP_NUM_THREADS", threads}});
    ASSERT_EQ(at.spillway(training(threads, 4)).status, 0);
    EXPECT_TRUE(mentions(at.read(threads + std::string("/log.txt")), std::string("threads: ") + threads + " on CPUs "));
  }
  EXPECT_EQ(at.metrics("1").size(), 4u);
  EXPECT_EQ(numbers_of(at.metrics("1")), numbers_of(at.metrics("2")));
}

}  // namespace
}  // namespace spillway::test::threads_test
