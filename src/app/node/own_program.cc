#include "app/node/own_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "app/node/host.h"
#include "base/error.h"

extern char** environ;

namespace spillway::app {
namespace {

// What makes a process a rank of somebody's.
constexpr const char* kMarksOfRanks[] = {
    "OMPI_", "PMIX_", "PMI_", "SLURM_STEP_", "SLURM_PROCID=", "SLURM_NTASKS=", "RANK=", "WORLD_SIZE=", "TORCHELASTIC_"};

std::vector<char*> environment_of_our_own() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    bool launchers = false;
    for (const char* prefix : kMarksOfRanks) launchers |= std::strncmp(*entry, prefix, std::strlen(prefix)) == 0;
    if (!launchers) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

std::string own_program() {
  if (const char* wrapper = std::getenv("SPILLWAY_PROGRAM"); wrapper != nullptr && *wrapper != '\0') return wrapper;
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? "spillway" : path.string();
}

std::string own_command_line() {
  std::istringstream words(read_whole("/proc/self/cmdline").value_or(""));
  std::string line;
  for (std::string word; std::getline(words, word, '\0');) {
    const bool plain =
        !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%") == word.npos;
    std::string quoted = word;
    for (size_t at = 0; (at = quoted.find('\'', at)) != quoted.npos; at += 4) quoted.replace(at, 1, "'\\''");
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return line;
}

OwnProcess::OwnProcess(const std::vector<std::string>& arguments, const std::string& output) {
  const std::string program = own_program();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int failed = ::posix_spawnp(&process_, program.c_str(), &actions, nullptr, argv.data(), environment_of_our_own().data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw Error(ErrorCode::io, "[start] expected " + program + " to start, got: " + std::strerror(failed));
}

OwnProcess::~OwnProcess() {
  if (status_) return;
  send(SIGKILL);
  wait();
}

void OwnProcess::send(int signal) const {
  if (!status_) ::kill(process_, signal);
}

void OwnProcess::take(int status) { status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

bool OwnProcess::is_over() {
  int status = 0;
  rusage use{};
  if (!status_ && ::wait4(process_, &status, WNOHANG, &use) == process_) take(status), peak_bytes_ = use.ru_maxrss * kKiB;
  return status_.has_value();
}

int OwnProcess::wait() {
  int status = 0;
  rusage use{};
  while (!status_) {
    if (::wait4(process_, &status, 0, &use) == process_) {
      take(status), peak_bytes_ = use.ru_maxrss * kKiB;
    } else if (errno != EINTR) {
      status_ = 128;
    }
  }
  return *status_;
}

int run_own_program(const std::vector<std::string>& arguments, const std::string& output) { return OwnProcess(arguments, output).wait(); }

}  // namespace spillway::app
