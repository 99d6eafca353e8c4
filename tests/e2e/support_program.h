// Runs the built program as a user would, in a folder of its own.
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
  int status = -1;  // exit status; 128 + signal when killed
  std::string out, err;
};

/// A fresh folder to run in, removed at the end.
class Workplace {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  /// `spillway args…` to its end.
  Finished spillway(const std::vector<std::string>& args) const;
  /// Starts it and sends `signal` as soon as `when` holds (looked at every few milliseconds); then waits for its end.
  Finished spillway_until(const std::vector<std::string>& args, const std::function<bool()>& when, int signal) const;

  /// Of the program started last.
  pid_t pid() const { return pid_; }

  /// Programs started from now on join this cgroup (a folder with cgroup.procs).
  void join_cgroup(const std::filesystem::path& cgroup) { cgroup_ = cgroup; }

  /// Programs started from now on are started by this one: mpirun and its flags.
  void start_by(std::vector<std::string> launcher) { launcher_ = std::move(launcher); }

  /// Programs started from now on do this first: limits and filters that exec keeps.
  void before_start(std::function<void()> prepare) { prepare_ = std::move(prepare); }

  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  /// English-like bytes, the same every time.
  void write_text(const std::string& name, int bytes) const;
  /// Lines of a run's metrics.jsonl.
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

/// A short training of llama-tiny on text.txt, with budgets and a scratch folder; and what `more` adds.
Args small_run(const std::string& out, int steps, const std::string& device_memory, const Args& more);

/// `--flag value` in place of the value there is.
Args with(Args args, const std::string& flag, const std::string& value);

inline bool mentions(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

/// The values of the keys that are numbers of the training itself, as text: step, loss, grad_norm, lr, loss_scale, and
/// where it has one validation_loss.
std::vector<std::string> numbers_of(const std::vector<std::string>& metrics);

}  // namespace spillway::test
