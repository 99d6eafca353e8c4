// Makes the parts of a report page. Each function returns one section of HTML, or an empty string if there is nothing to show. All
// functions are pure.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "app/report/reported_run.h"

namespace spillway::app {

/// page_begin() returns the beginning of the document, up to and including the heading; page_end() returns its end.
std::string page_begin(const std::string& title, const std::string& made);
std::string page_end();
std::string section(const std::string& title, const std::string& body);
/// Returns a box with a shell command that the reader can copy.
std::string command_box(const std::string& command);

/// Returns charts of one or several runs: training and validation loss, accuracy, gradient norm, learning rate, speed, and time of a step.
std::string progress_charts(std::span<const ReportedRun> runs);
std::string summary_cards(const ReportedRun& run);
std::string comparison(std::span<const ReportedRun> runs);

std::string memory_charts(const ReportedRun& run);
std::string plan_table(const RunPlan& plan);
std::string bytes_part(const ReportedRun& run);
std::string lanes_part(const ReportedRun& run, size_t most_bars);
std::string audit_part(const ReportedRun& run);
std::string help_part(const ReportedRun& run);
std::string config_part(const ReportedRun& run);

/// planned_bytes() returns the bytes that a step moves according to the plan; planned_lanes() returns a simulated step lane by lane, a lane
/// being an executing thread.
std::string planned_bytes(const RunPlan& plan);
std::string planned_lanes(const RunPlan& plan, const Timeline& timeline, size_t most_bars);

}  // namespace spillway::app
