// Starts further processes of the program that is running.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

/// Returns the path of the program. This is $SPILLWAY_PROGRAM if the variable is set: the wrapper script of a
/// packaged bundle sets it, because the kernel would report the path of the bundle's loader. Without the
/// variable the path given to set_own_program() is returned, and without that the path that the kernel reports.
std::string own_program();
/// Sets the path that own_program() returns. A program that has loaded this library must call it before the other functions.
void set_own_program(std::string program);

/// Returns the command line with which this process was started, quoted for a shell.
std::string own_command_line();

/// OwnProcess is a child process that runs this program with its output in a file. Environment variables by
/// which a launcher made this process a rank are removed for the child. The child is killed when the thread
/// that created it ends, for whatever reason. For use by one thread; the process may have no other children.
class OwnProcess {
 public:
  /// Starts the program. stdout goes to the file `output`. stderr goes to `errors`, or also
  /// to `output` if `errors` is empty. Throws Error(io) if the program cannot be started.
  OwnProcess(const std::vector<std::string>& arguments, const std::string& output, const std::string& errors = "");
  /// Calls kill() if the child is still running.
  ~OwnProcess();
  OwnProcess(const OwnProcess&) = delete;
  OwnProcess& operator=(const OwnProcess&) = delete;

  bool is_over();
  void send(int signal) const;
  /// Sends SIGKILL and waits until the child and the ranks that it started
  /// have ended and released their resources. Returns what wait() returns.
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

/// Runs this program with the given arguments to its end. Returns what OwnProcess::wait() returns.
int run_own_program(const std::vector<std::string>& arguments, const std::string& output);

}  // namespace spillway::trainer
