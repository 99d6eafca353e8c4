#include "trainer/node/own_program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "trainer/node/host.h"

extern char** environ;

namespace spillway::trainer {
namespace {

// kMarksOfRanks lists prefixes of the environment variables by which launchers tell a process that it is a rank.
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

// ToStart holds everything that the child process needs. It is filled before fork, because no memory may be allocated between fork and
// exec.
struct ToStart {
  const char* program;
  char* const* argv;
  char* const* environment;
  const char *output, *errors;
  pid_t parent;
  int trouble;  // pipe to which the child writes errno if it cannot start the program; a successful exec closes it
};

bool direct(int descriptor, const char* file) {
  const int opened = ::open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return opened >= 0 && ::dup2(opened, descriptor) == descriptor;
}

// Runs in the child process and executes the program. The child must not outlive its parent: prctl() has the kernel kill it with the
// parent, and it exits by itself if the parent has died already.
[[noreturn]] void become(const ToStart& start) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(1);
  const bool same = std::strcmp(start.output, start.errors) == 0;
  const bool directed = direct(STDOUT_FILENO, start.output) &&
                        (same ? ::dup2(STDOUT_FILENO, STDERR_FILENO) == STDERR_FILENO : direct(STDERR_FILENO, start.errors));
  if (directed) ::execvpe(start.program, start.argv, start.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(start.trouble, &error, sizeof error);
  ::_exit(127);
}

// Waits for the child to start. Returns 0 once the child runs the program, or the errno of the failure.
int errno_of_start(pid_t process, int pipe_end) {
  int error = process < 0 ? errno : 0;
  while (process >= 0 && ::read(pipe_end, &error, sizeof error) < 0 && errno == EINTR) {
  }
  return error;
}

std::string& told_program() {
  static std::string program;
  return program;
}

}  // namespace

void set_own_program(std::string program) { told_program() = std::move(program); }

std::string own_program() {
  if (const char* wrapper = std::getenv("SPILLWAY_PROGRAM"); wrapper != nullptr && *wrapper != '\0') return wrapper;
  if (!told_program().empty()) return told_program();
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

OwnProcess::OwnProcess(const std::vector<std::string>& arguments, const std::string& output, const std::string& errors) {
  ::signal(SIGCHLD, SIG_DFL);  // the parent of this process may have set SIG_IGN, with which children cannot be waited for
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string program = own_program();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::vector<char*> environment = environment_of_our_own();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::io, std::string("[start] expected to create a pipe, got: ") + std::strerror(errno));
  const std::string& both = errors.empty() ? output : errors;
  const ToStart start{program.c_str(), argv.data(), environment.data(), output.c_str(), both.c_str(), ::getpid(), ends[1]};
  process_ = ::fork();
  if (process_ == 0) become(start);
  ::close(ends[1]);
  const int failed = errno_of_start(process_, ends[0]);
  ::close(ends[0]);
  if (failed == 0) return;
  if (process_ > 0) wait();
  throw Error(ErrorCode::io, "[start] expected " + program + " to start, got: " + std::strerror(failed));
}

OwnProcess::~OwnProcess() {
  if (!status_) kill();
}

// This process is a subreaper. The child's own children therefore become children of this process when the child dies, and the loop waits
// for them too.
int OwnProcess::kill() {
  send(SIGKILL);
  const int status = wait();
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  return status;
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

}  // namespace spillway::trainer
