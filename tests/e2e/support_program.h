// Runs the built program as a user would, in a temporary folder.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace spillway::test {

struct Finished {
  int status = -1;  // exit status, or 128 + the number of the signal that killed the program
  std::string out, err;
};

/// A Workplace is a new folder to run programs in, which is removed at the end.
class Workplace {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  /// Runs `spillway args…` to its end.
  Finished spillway(const std::vector<std::string>& args) const;
  /// Starts the program, sends it `signal` as soon as `when` returns true (asked every few milliseconds), and waits for its end.
  Finished spillway_until(const std::vector<std::string>& args, const std::function<bool()>& when, int signal) const;

  /// Returns the process id of the program started last.
  pid_t pid() const { return pid_; }

  /// Makes programs that are started from now on join this cgroup, which is a folder with cgroup.procs.
  void join_cgroup(const std::filesystem::path& cgroup) { cgroup_ = cgroup; }

  /// Prefixes programs that are started from now on with a launcher and its flags, such as mpirun.
  void start_by(std::vector<std::string> launcher) { launcher_ = std::move(launcher); }

  /// Makes programs that are started from now on call `prepare` before exec, for limits and filters that exec keeps.
  void before_start(std::function<void()> prepare) { prepare_ = std::move(prepare); }

  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  /// Writes a file of English-like text, which is the same every time.
  void write_text(const std::string& name, int bytes) const;
  /// Returns the lines of a run's metrics.jsonl.
  std::vector<std::string> metrics(const std::string& run) const;

 private:
  pid_t start(const std::vector<std::string>& args) const;
  Finished wait(pid_t pid) const;
  TemporaryFolder folder_;
  std::filesystem::path cgroup_;
  std::vector<std::string> launcher_;
  std::function<void()> prepare_ = [] {};
  mutable pid_t pid_ = -1;
};

using Args = std::vector<std::string>;

/// Returns the command line of a short training of llama-tiny on text.txt, with memory budgets and a scratch folder, followed by `more`.
Args small_run(const std::string& out, int steps, const std::string& device_memory, const Args& more);

/// Returns `args` with the value of `flag` replaced.
Args with(Args args, const std::string& flag, const std::string& value);

inline bool mentions(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

/// Returns the training's own numbers of each step as text: step, loss, grad_norm, lr, loss_scale, and validation_loss if there is one.
std::vector<std::string> numbers_of(const std::vector<std::string>& metrics);

}  // namespace spillway::test
