// What a report shows of a run, from its folder alone, while the run may be writing there; and of a plan before its run. Values.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/record/timeline.h"
#include "app/report/history.h"
#include "app/run/run_status.h"

namespace spillway::app {

struct ReportedRun {
  std::string name;  // its path as it was given
  RunStatus status;
  std::optional<RunPlan> plan;
  std::optional<Timeline> timeline;
  History history;
  std::vector<std::pair<std::string, std::string>> config;  // keys and values, as text
  std::string go_on;                                        // the command that goes on with the run
  std::vector<std::string> notes;                           // what is missing or damaged
};

/// `buckets`: of the charts. Errors: Error(data) when there is no such folder, Error(usage) when it is no run's, Error(io).
ReportedRun read_run(const std::filesystem::path& run, i64 buckets);

struct ReportedPlan {
  RunPlan plan;
  Timeline timeline;
  std::vector<std::string> lines;                      // the pace, in words
  std::vector<std::vector<std::string>> alternatives;  // rows of text, with a head; empty: none
  std::string command;
};

}  // namespace spillway::app
