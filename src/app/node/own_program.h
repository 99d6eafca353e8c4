// The program that is running, as something to be started again.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::app {

/// Its path: what a bundle's wrapper says (there the kernel names the loader), what set_own_program() was told, or the kernel's word.
std::string own_program();
/// This process is another program's, which loaded the library: what is to be started is `program`. Before any of the rest is called.
void set_own_program(std::string program);

/// How this process was started, as one would type it.
std::string own_command_line();

/// A process of it, whose output goes to a file; nothing of a launcher that started us reaches it. It dies with the thread that made it,
/// however that ends. One thread, which has no other children.
class OwnProcess {
 public:
  /// `errors`: a file of its own for what goes to stderr; empty: the same one. Throws Error(io) when it does not start.
  OwnProcess(const std::vector<std::string>& arguments, const std::string& output, const std::string& errors = "");
  /// kill()s it if it still runs.
  ~OwnProcess();
  OwnProcess(const OwnProcess&) = delete;
  OwnProcess& operator=(const OwnProcess&) = delete;

  bool is_over();
  void send(int signal) const;
  /// SIGKILL; returns when it and the ranks it has started are gone, with what they held. wait()'s status.
  int kill();
  /// Its exit status, or 128 + the signal that killed it.
  int wait();
  /// After wait(): the most memory it held; of the processes that it started and awaited, too, the largest one's.
  i64 peak_bytes() const { return peak_bytes_; }

 private:
  void take(int status);
  int process_ = -1;
  std::optional<int> status_;
  i64 peak_bytes_ = 0;
};

/// Runs it with these arguments to its end.
int run_own_program(const std::vector<std::string>& arguments, const std::string& output);

}  // namespace spillway::app
