// Starts further processes of the program that is running now.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

/// Returns the path of the program. The path is $SPILLWAY_PROGRAM if it is set: the wrapper script of a packaged bundle sets it, because
/// the kernel would report the path of the bundle's loader. Otherwise it is that of set_own_program(), else the one that the kernel
/// reports.
std::string own_program();
/// Sets the path of the program to start. To be called before the other functions if another program has loaded this library.
void set_own_program(std::string program);

/// Returns the command line of this process, quoted for a shell.
std::string own_command_line();

/// A child process that runs this program with its output in a file. Environment variables of the launcher that started us are removed. The
/// child is killed when the thread that created it ends, for whatever reason. For use by one thread; the process may have no other
/// children.
class OwnProcess {
 public:
  /// Starts the program. stdout goes to the file `output`, stderr to `errors`, or also to `output` if `errors` is empty. Throws Error(io)
  /// if it cannot be started.
  OwnProcess(const std::vector<std::string>& arguments, const std::string& output, const std::string& errors = "");
  /// Calls kill() if the child is still running.
  ~OwnProcess();
  OwnProcess(const OwnProcess&) = delete;
  OwnProcess& operator=(const OwnProcess&) = delete;

  bool is_over();
  void send(int signal) const;
  /// Sends SIGKILL and waits until the child and the ranks that it started have ended and released their resources. Returns the status of
  /// wait().
  int kill();
  /// Waits for the child's end. Returns its exit status, or 128 + the signal that killed it.
  int wait();
  /// Returns, after wait(), the peak memory of the child, or of the largest of the processes that it started and waited for.
  i64 peak_bytes() const { return peak_bytes_; }

 private:
  void take(int status);
  int process_ = -1;
  std::optional<int> status_;
  i64 peak_bytes_ = 0;
};

/// Runs this program with these arguments to its end. Returns the status of OwnProcess::wait().
int run_own_program(const std::vector<std::string>& arguments, const std::string& output);

}  // namespace spillway::trainer
