// The report: one HTML page that needs nothing beside it, for screens from 400 to 1600 pixels, light or dark, and for paper. But for
// write_page() pure functions of what was read.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/report/reported_run.h"

namespace spillway::app {

/// `made`: when, in words.
std::string report_page(std::span<const ReportedRun> runs, const std::string& made);
std::string plan_page(const ReportedPlan& plan, const std::string& made);

/// Writes a page, which replaces an older page of this program and nothing else. Error(usage): something else is there. Error(io).
void write_page(const std::filesystem::path& file, const std::string& page);

/// Buckets of a chart of so many runs: the page stays small.
i64 buckets_for(size_t runs);

}  // namespace spillway::app
