// Makes the report of a run as one self-contained HTML page, for screens from 400 to 1600 pixels wide, in light
// or dark mode, and for paper. All functions but write_page() are pure functions of the data that was read.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/report/reported_run.h"

namespace spillway::app {

/// report_page() returns the HTML of a report on one or several runs, plan_page() that of a report on a plan. `made` is the time of the
/// report, as text.
std::string report_page(std::span<const ReportedRun> runs, const std::string& made);
std::string plan_page(const ReportedPlan& plan, const std::string& made);

/// Writes a page. The page replaces only an empty file or an older page of this program.
/// Throws Error(usage) if `file` is anything else, and Error(io) if it cannot be written.
void write_page(const std::filesystem::path& file, const std::string& page);

/// Returns the number of buckets (ranges of steps) of each chart on a page of `runs` runs.
/// The more runs there are, the fewer buckets each chart has, so that the page stays small.
i64 buckets_for(size_t runs);

}  // namespace spillway::app
