// RehearsedRun runs one training process of a rehearsal: it starts the process with --json and its output
// in files, watches it while it runs, and reads what it leaves in its run folder. For use by one thread.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "trainer/node/own_program.h"

namespace spillway::app {

using Rows = std::vector<nlohmann::ordered_json>;

/// Returns the complete lines of a run's metrics.jsonl.
Rows rows_of(const std::filesystem::path& run);

/// RehearsalInterrupted is thrown when a signal asks the rehearsal to stop.
struct RehearsalInterrupted {};

class RehearsedRun {
 public:
  /// Starts `spillway train words… --json`. Its stdout goes to the file `said`.json, its stderr to `said`.txt.
  RehearsedRun(const std::vector<std::string>& words, const std::filesystem::path& said);

  /// Waits until when() returns true or the process ends. Returns true if the process still runs, and false if it ended by itself. Throws
  /// RehearsalInterrupted.
  bool runs_until(const std::function<bool()>& when);
  void send(int signal) const { process_.send(signal); }
  int kill() { return process_.kill(); }
  /// Waits for the process to end and returns its exit status. Throws RehearsalInterrupted.
  int end();
  i64 peak_bytes() const { return process_.peak_bytes(); }

  /// Returns the JSON result that the process printed. The result is not an object if the process printed none.
  nlohmann::ordered_json result() const;
  /// Returns the message with which the process ended. This is its error if there is one; otherwise its last warning and what followed;
  /// otherwise its last line.
  std::string words() const;
  /// Returns the last line of the process's output that begins with `begin`, without this prefix. The result is empty if there is no such
  /// line.
  std::string last_line(const std::string& begin) const;

 private:
  std::vector<std::string> lines() const;

  const std::filesystem::path said_;
  OwnProcess process_;
};

}  // namespace spillway::app
