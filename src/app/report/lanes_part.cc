// Makes the sections of a report that show where the time of a step goes: its lanes (compute, copies,
// disk and so on), the pipeline, the plan compared with measurements, and what would make steps faster.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/report/chart.h"
#include "app/report/html.h"
#include "app/report/page_parts.h"
#include "app/report/timeline_svg.h"
#include "base/units.h"

namespace spillway::app {
namespace {

double at(const Phases& phases, const std::string& name) {
  const auto found = phases.find(name);
  return found == phases.end() ? 0 : found->second;
}

std::string share_bar(double share) {
  return fmt::format(R"(<span class="bar"><u style="width:{:.1f}%"></u></span> {:.0f} %)", 100 * std::clamp(share, 0.0, 1.0), 100 * share);
}

std::string milliseconds(double ms) { return ms > 0 ? shown(ms / 1e3, Unit::seconds) : "-"; }

// Returns a table of the lanes (compute, copies, disk and so on) with the measured time of each,
// and with the predicted time if there is a plan. The result is empty if no lane was busy.
std::string lane_table(const Phases& phases, const std::optional<RunPlan>& planned, double step_ms) {
  std::vector<std::vector<std::string>> rows(1, {"lane", "busy per step"});
  if (planned) rows[0].emplace_back("predicted");
  rows[0].insert(rows[0].end(), {"computing waits for this lane", "share of the step"});
  for (int l = 0; l < parallel::kLanes; ++l) {
    const std::string lane(to_string(static_cast<parallel::Lane>(l)));
    const double busy = at(phases, "lane_" + lane);
    if (!(busy > 0)) continue;
    std::vector<std::string> row = {lane, milliseconds(busy)};
    if (planned) row.push_back(milliseconds(at(planned->phase_ms, "lane_" + lane)));
    row.push_back(milliseconds(at(phases, "wait_" + lane)));
    row.push_back(step_ms > 0 ? share_bar(busy / step_ms) : "");
    rows.push_back(std::move(row));
  }
  return rows.size() == 1 ? "" : table(rows);
}

double step_ms_of(const Phases& phases) { return at(phases, "head") + at(phases, "tail"); }

std::string row_value(const AuditRow& row, double value) {
  if (!(value > 0)) return "-";
  return exact(value, row.bytes ? format_bytes(static_cast<i64>(value)) : shown(value, Unit::seconds));
}

std::string bounds_text(const History& h) {
  std::string text;
  i64 all = 0;
  for (const auto& [by, steps] : h.bound_steps) all += steps;
  for (const auto& [by, steps] : h.bound_steps)
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", by, 100.0 * static_cast<double>(steps) / static_cast<double>(all));
  return text;
}

}  // namespace

std::string lanes_part(const ReportedRun& run, size_t most_bars) {
  const History& h = run.history;
  std::string text = lane_table(h.phase_ms, run.plan, step_ms_of(h.phase_ms));
  if (run.timeline) {
    const Timeline& t = *run.timeline;
    const std::string whose = t.ranks.size() > 1 ? " of the first rank" : "";
    text += lanes_figure(t, 0, fmt::format("Step {}{}, lane by lane, as it ran", t.step, whose), most_bars / 2);
    if (t.ranks.size() > 1) {
      const bool pipeline = run.plan && run.plan->pipeline_stages > 1;
      text += "<h3>" + std::string(pipeline ? "The pipeline" : "The ranks") + "</h3>\n" +
              pipeline_figure(t, fmt::format("Step {}: what each rank computed, with the micro-batch number on each bar", t.step),
                              most_bars / 2);
    }
  } else if (!text.empty()) {
    text += "<p class=\"muted\">No step of this run was recorded lane by lane (timeline.json).</p>\n";
  }
  return section("Lanes of a step", text);
}

std::string audit_part(const ReportedRun& run) {
  const History& h = run.history;
  if (!run.plan || h.audit.empty()) return "";
  MemoryAudit memory;
  memory.planned = run.plan->total;
  constexpr const char* kPeaks[] = {"peak_bytes.device", "peak_bytes.host", "peak_bytes.nvme"};
  for (size_t t = 0; t < offload::kTiers; ++t) {
    const double peak = h.last[metric(kPeaks[t])];
    memory.peak[t] = peak > 0 ? static_cast<i64>(peak) : 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {h.audit.steps() == 1 ? "1 step" : fmt::format("means of {} steps", h.audit.steps()), "planned", "measured", ""}};
  for (const AuditRow& row : h.audit.rows(memory)) {
    if (!(row.predicted > 0) && !(row.measured > 0)) continue;
    const double off = row.predicted > 0 ? row.measured / row.predicted - 1 : 0;
    rows.push_back({escaped(row.what), row_value(row, row.predicted), row_value(row, row.measured),
                    std::abs(off) >= 0.005 ? fmt::format("{:+.0f} %", 100 * off) : ""});
  }
  return section("Plan and measurement", table(rows));
}

std::string help_part(const ReportedRun& run) {
  const History& h = run.history;
  if (h.bound_steps.empty()) return "";
  std::string text;
  if (run.plan && !h.audit.empty()) text = fmt::format("<p>{}.</p>\n", escaped(h.audit.verdict(run.plan->levers)));
  text += fmt::format("<p class=\"muted\">Share of the steps that each resource limited: {}.</p>\n", escaped(bounds_text(h)));
  if (run.status.slowest_rank) text += fmt::format("<p>The other ranks wait most often for rank {}.</p>\n", *run.status.slowest_rank);
  return section("What would help", text);
}

std::string config_part(const ReportedRun& run) {
  if (run.config.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"key", "value"}};
  for (const auto& [key, value] : run.config) rows.push_back({escaped(key), escaped(value)});
  return "<details class=\"config\"><summary>Configuration (config.json)</summary>\n" + table(rows, 2) + "</details>\n";
}

std::string planned_lanes(const RunPlan& plan, const Timeline& timeline, size_t most_bars) {
  std::string text = lane_table(plan.phase_ms, {}, step_ms_of(plan.phase_ms));
  text += lanes_figure(timeline, 0, plan.ranks > 1 ? "A step of the first rank, as simulated" : "A step, as simulated", most_bars / 2);
  if (timeline.ranks.size() > 1) text += pipeline_figure(timeline, "What each stage of the pipeline would compute", most_bars / 2);
  return section("Lanes of a step", text);
}

}  // namespace spillway::app
