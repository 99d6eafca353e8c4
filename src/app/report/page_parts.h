// The parts of a page, each a section of markup, or nothing where there is nothing to show. Pure functions.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "app/report/reported_run.h"

namespace spillway::app {

/// The head of the document up to the body's title; what a page ends with.
std::string page_begin(const std::string& title, const std::string& made);
std::string page_end();
std::string section(const std::string& title, const std::string& body);
/// A line of shell to be copied.
std::string command_box(const std::string& command);

/// Of one run or several: loss, held-out loss, learning rate, gradient norm, speed.
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

/// Of a plan before its run.
std::string planned_bytes(const RunPlan& plan);
std::string planned_lanes(const RunPlan& plan, const Timeline& timeline, size_t most_bars);

}  // namespace spillway::app
