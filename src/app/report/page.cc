#include "app/report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/report/html.h"
#include "app/report/page_parts.h"
#include "base/error.h"
#include "data/files/beside.h"

namespace spillway::app {
namespace {

constexpr i64 kMostBuckets = 750, kLeastBuckets = 100;  // buckets of a chart, in each of which a line has at most two points
constexpr size_t kPageBars = 2400;

std::string notes_of(const ReportedRun& run) {
  if (run.notes.empty()) return "";
  std::string text = "<ul class=\"notes\">";
  for (const std::string& note : run.notes) text += "<li>" + escaped(note) + "</li>";
  return text + "</ul>\n";
}

std::string go_on_part(const ReportedRun& run) {
  if (run.go_on.empty()) return "";
  const char* words = run.status.state == RunStatus::State::finished ? "The run is finished. To train twice as many steps, run this command"
                      : run.status.state == RunStatus::State::running
                          ? "The run is still running. When it has stopped, resume it with this command"
                          : "The run stopped before its end. Resume it with this command";
  const std::string ranks = run.status.ranks > 1 ? " and with the launcher that started it, if there was one" : "";
  return section("To continue",
                 fmt::format("<p>{}, in the folder in which the run was started{}:</p>\n{}", words, ranks, command_box(run.go_on)));
}

std::string details_of(const ReportedRun& run, size_t most_bars) {
  std::string text = memory_charts(run);
  text += bytes_part(run) + lanes_part(run, most_bars) + audit_part(run) + help_part(run) + go_on_part(run) + config_part(run);
  return text;
}

}  // namespace

void write_page(const std::filesystem::path& file, const std::string& page) {
  constexpr i64 kHeadBytes = 4 * kKiB;
  std::error_code unseen;
  if (std::filesystem::exists(file, unseen)) {
    const data::File old = data::File::open(file);
    std::string head(static_cast<size_t>(std::min(old.size_bytes(), kHeadBytes)), ' ');
    old.read(0, std::as_writable_bytes(std::span(head)));
    const bool ours = head.find("content=\"Spillway\"") != head.npos || head.find(" - Spillway</title>") != head.npos;
    if (!ours && !head.empty()) {
      throw Error(ErrorCode::usage,
                  fmt::format("[--out] expected a new file, or an older page of this program to replace, got {}, which is "
                              "neither: give another name",
                              file.string()));
    }
  }
  data::AtomicFile made(file, data::Existing::replace);
  made.file().write(0, std::as_bytes(std::span(page)));
  made.commit();
}

i64 buckets_for(size_t runs) { return std::max(kLeastBuckets, kMostBuckets / static_cast<i64>(std::max<size_t>(1, runs))); }

std::string report_page(std::span<const ReportedRun> runs, const std::string& made) {
  const bool one = runs.size() == 1;
  std::string text = page_begin(one ? runs[0].name : fmt::format("{} runs", runs.size()), made);
  if (one) text += summary_cards(runs[0]) + notes_of(runs[0]);
  if (!one) text += comparison(runs);
  text += progress_charts(runs);
  const size_t bars = kPageBars / std::max<size_t>(1, runs.size());
  for (const ReportedRun& run : runs) {
    if (one) {
      text += details_of(run, bars);
    } else {
      text += fmt::format("<details class=\"run\" open><summary><h2>{}</h2></summary>\n{}{}{}</details>\n", escaped(run.name),
                          summary_cards(run), notes_of(run), details_of(run, bars));
    }
  }
  return text + page_end();
}

std::string plan_page(const ReportedPlan& planned, const std::string& made) {
  std::string text = page_begin("Plan of " + planned.plan.model, made);
  std::string pace;
  for (const std::string& line : planned.lines) pace += "<p>" + escaped(line) + "</p>\n";
  text += section("Pace", pace);
  text += section("Memory", plan_table(planned.plan));
  text += planned_bytes(planned.plan);
  text += planned_lanes(planned.plan, planned.timeline, kPageBars);
  if (!planned.alternatives.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : planned.alternatives) {
      rows.emplace_back();
      for (const std::string& cell : row) rows.back().push_back(escaped(cell));
    }
    text += section("What else fits, fastest first", table(rows));
  }
  return text + section("To train like this", command_box(planned.command)) + page_end();
}

}  // namespace spillway::app
