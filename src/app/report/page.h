// The report: one HTML page that needs nothing beside it, for screens from 400 to 1600 pixels, light or dark, and for paper. Pure functions
// of what was read.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "app/report/reported_run.h"

namespace spillway::app {

/// `made`: when, in words.
std::string report_page(std::span<const ReportedRun> runs, const std::string& made);
std::string plan_page(const ReportedPlan& plan, const std::string& made);

/// Buckets of a chart of so many runs: the page stays small.
i64 buckets_for(size_t runs);

}  // namespace spillway::app
