// Holds the data that a report shows. A ReportedRun is read from a run folder alone; the run may be writing
// to the folder at the same time. A ReportedPlan is a plan without a run. The types are plain values.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/names/names.h"
#include "app/report/history.h"
#include "trainer/record/timeline.h"
#include "trainer/run/run_status.h"

namespace spillway::app {

struct ReportedRun {
  std::string name;  // path of the run folder, as the user gave it
  RunStatus status;
  std::optional<RunPlan> plan;
  std::optional<Timeline> timeline;
  History history;
  std::vector<std::pair<std::string, std::string>> config;  // keys and values of config.json, as text
  std::string go_on;                                        // the shell command that continues the run
  std::vector<std::string> notes;                           // sentences on what is missing or damaged in the folder
};

/// Reads the run folder `run`. Charts have `buckets` ranges of steps. Throws Error(data) if the
/// folder does not exist, Error(usage) if it is not a run folder, and Error(io) if it cannot be read.
ReportedRun read_run(const std::filesystem::path& run, i64 buckets);

struct ReportedPlan {
  RunPlan plan;
  Timeline timeline;
  std::vector<std::string> lines;                      // sentences on the predicted speed of training
  std::vector<std::vector<std::string>> alternatives;  // other plans that fit: the table's head and its rows, as text; may be empty
  std::string command;                                 // the command that trains with this plan
};

}  // namespace spillway::app
