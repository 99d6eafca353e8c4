// One process of a rehearsal that trains: started with --json, its output in files, looked at while it runs, and what it leaves in its run
// folder. One thread.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/node/own_program.h"

namespace spillway::app {

using Rows = std::vector<nlohmann::ordered_json>;

/// The whole lines of a run's metrics.jsonl.
Rows rows_of(const std::filesystem::path& run);

/// Thrown where a signal says to stop.
struct RehearsalInterrupted {};

class RehearsedRun {
 public:
  /// `spillway train words… --json`; its output goes to `said`.json and `said`.txt.
  RehearsedRun(const std::vector<std::string>& words, const std::filesystem::path& said);

  /// True: when() holds and it runs. False: it ended by itself. Throws RehearsalInterrupted.
  bool runs_until(const std::function<bool()>& when);
  void send(int signal) const { process_.send(signal); }
  int kill() { return process_.kill(); }
  /// Waits for it. Its exit status. Throws RehearsalInterrupted.
  int end();
  i64 peak_bytes() const { return process_.peak_bytes(); }

  /// What it gave as a result; no object if it gave none.
  nlohmann::ordered_json result() const;
  /// What it ended with, in its own words: its error, else its last warning and what followed, else its last line.
  std::string words() const;
  /// Its last line that begins so, without that; else empty.
  std::string last_line(const std::string& begin) const;

 private:
  std::vector<std::string> lines() const;

  const std::filesystem::path said_;
  OwnProcess process_;
};

}  // namespace spillway::app
