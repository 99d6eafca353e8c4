#include "tests/sockets/ranks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "parallel/sockets/communicator_sockets.h"

namespace spillway::parallel::test {
namespace {

namespace fs = std::filesystem;

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

int ranks_per_node() { return from_environment("SPILLWAY_TEST_RANKS_PER_NODE", 0); }

// Returns the place of a rendezvous: a socket name if all ranks are on one node. With two nodes the place is in turn a file and a port.
std::string place(int meeting) {
  const std::string run = std::getenv("SPILLWAY_TEST_RUN");
  if (ranks_per_node() == 0) return "unix:spillway-test-" + run + "-" + std::to_string(meeting);
  if (meeting % 2) return "tcp:localhost:" + std::to_string(from_environment("SPILLWAY_TEST_PORT", 0));
  return "file:" + (fs::temp_directory_path() / ("spillway-test-" + run + "-" + std::to_string(meeting))).string();
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t bytes = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), bytes);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(fd);
  return ntohs(address.sin_port);
}

pid_t start(int rank, char** argv) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("SPILLWAY_TEST_RANK", std::to_string(rank).c_str(), 1);
  // Only rank 0 prints. Failures of other ranks show on stderr and in their exit status.
  if (rank != 0) dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
  execv("/proc/self/exe", argv);
  _exit(127);
}

// Starts all ranks and returns the largest of their exit statuses: 0 if all succeed. A rank that a test ends on purpose does not count.
int start_all(char** argv) {
  setenv("SPILLWAY_TEST_RUN", std::to_string(getpid()).c_str(), 1);
  setenv("SPILLWAY_TEST_PORT", std::to_string(free_port()).c_str(), 1);
  std::vector<pid_t> ranks;
  for (int r = 0; r < all_ranks(); ++r) ranks.push_back(start(r, argv));
  int worst = 0;
  for (int r = 0; r < all_ranks(); ++r) {
    int status = 0;
    if (r == ending_rank()) continue;
    waitpid(ranks[static_cast<size_t>(r)], &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0) std::fprintf(stderr, "rank %d: exit status %d\n", r, code);
    worst = std::max(worst, code);
  }
  if (ending_rank() >= 0) {
    kill(ranks[static_cast<size_t>(ending_rank())], SIGKILL);
    waitpid(ranks[static_cast<size_t>(ending_rank())], nullptr, 0);
  }
  return worst;
}

}  // namespace

int this_rank() { return from_environment("SPILLWAY_TEST_RANK", -1); }
int all_ranks() { return from_environment("SPILLWAY_TEST_RANKS", 2); }
int ending_rank() { return from_environment("SPILLWAY_TEST_ENDS", -1); }

void run_here(int ranks, double timeout_s, const Body& body) {
  static int meetings = 0;
  auto whole = open_socket_communicator({.rank = this_rank(),
                                         .size = all_ranks(),
                                         .place = place(meetings++),
                                         .token = "of this test",
                                         .timeout_s = timeout_s,
                                         .meeting_s = 60,
                                         .ranks_per_node = ranks_per_node()});
  if (ranks == whole->size()) return run_rank(this_rank(), std::move(whole), body);
  auto part = whole->split(this_rank() < ranks ? 0 : 1);
  if (this_rank() < ranks) run_rank(this_rank(), std::move(part), body);
}

}  // namespace spillway::parallel::test

int main(int argc, char** argv) {
  using namespace spillway::parallel::test;
  bool lists = false;
  for (int k = 1; k < argc; ++k) lists |= std::string(argv[k]).starts_with("--gtest_list_tests");
  if (this_rank() < 0 && !lists) return start_all(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
