// Makes the sections of a report on memory by tier, and on the bytes that a step moves over each link. Both sections compare measurements
// with the plan.
#include <fmt/format.h>

#include "app/report/chart.h"
#include "app/report/html.h"
#include "app/report/page_parts.h"
#include "base/units.h"

namespace spillway::app {
namespace {

constexpr const char* kTierNames[] = {"device", "host", "nvme"};

std::string size_cell(double bytes) { return bytes > 0 ? exact(bytes, format_bytes(static_cast<i64>(bytes))) : "-"; }

std::string difference(double planned, double measured) {
  if (!(planned > 0)) return "";
  const double off = 100 * (measured / planned - 1);
  return off > -0.5 && off < 0.5 ? "" : fmt::format("{:+.0f} %", off);
}

std::string of_first(const ReportedRun& run) { return run.status.ranks > 1 ? " of the first rank" : ""; }

struct Link {
  const char *name, *column;
  double measured = 0, planned = 0;
};

std::vector<Link> links_of(const History& h, const parallel::TierBytes& m) {
  const auto bytes = [](i64 count) { return static_cast<double>(count); };
  return {{"read from host memory", "read_bytes.host", h.read[1], bytes(m.read[1])},
          {"written to host memory", "written_bytes.host", h.written[1], bytes(m.written[1])},
          {"read from nvme", "read_bytes.nvme", h.read[2], bytes(m.read[2])},
          {"written to nvme", "written_bytes.nvme", h.written[2], bytes(m.written[2])},
          {"exchanged with other ranks", "exchanged_bytes", h.exchanged, bytes(m.exchanged)},
          {"sent to other stages", "sent_bytes", h.sent, bytes(m.sent)}};
}

}  // namespace

std::string memory_charts(const ReportedRun& run) {
  const History& h = run.history;
  if (h.steps == 0) return run.plan ? section("Memory", plan_table(*run.plan)) : "";
  std::string text;
  for (size_t t = 0; t < offload::kTiers; ++t) {
    const std::string tier = kTierNames[t];
    if (!(h.measure("peak_bytes." + tier).most.value > 0)) continue;
    Chart chart;
    chart.title = fmt::format("Held in {}{}", t == 1 ? "host memory" : tier == "device" ? "device memory" : tier, of_first(run));
    chart.what = "Bytes held after each step, their peak so far, and the budget where there is one.";
    chart.unit = Unit::bytes;
    chart.from_zero = true;
    chart.lines = {{"after the step", h.of("tier_bytes." + tier).points(), 0},
                   {"peak so far", h.of("peak_bytes." + tier).points(), 1, true}};
    if (run.plan)
      chart.limits = {{"planned", static_cast<double>(run.plan->total[t]), true}, {"budget", static_cast<double>(run.plan->budget[t])}};
    text += figure(chart);
  }
  if (!text.empty()) text = "<div class=\"charts\">\n" + text + "</div>\n";
  if (run.plan) text += plan_table(*run.plan);
  return section("Memory by tier", text);
}

std::string plan_table(const RunPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"planned", "device", "host", "nvme"}};
  const auto add = [&](const std::string& what, const RunPlan::ByTier& bytes) {
    rows.push_back({escaped(what)});
    for (const i64 one : bytes) rows.back().push_back(size_cell(static_cast<double>(one)));
  };
  for (const parallel::PlanRow& row : plan.rows) add(row.what, row.bytes);
  add("total", plan.total);
  add("budget", plan.budget);
  std::string text = table(rows);
  if (plan.choices.empty()) return text;
  text = "<div class=\"split\">" + text + "<ul>";
  for (const std::string& line : plan.choices) text += "<li>" + escaped(line) + "</li>";
  return text + "</ul></div>\n";
}

std::string bytes_part(const ReportedRun& run) {
  const History& h = run.history;
  if (h.process_steps == 0) return "";
  const parallel::TierBytes planned = run.plan ? run.plan->moved : parallel::TierBytes();
  Chart chart;
  chart.title = "Bytes that a step moves" + of_first(run);
  chart.what = "Bytes that each step read from and wrote to each tier, and exchanged with other ranks.";
  chart.unit = Unit::bytes;
  chart.from_zero = true;
  std::vector<std::vector<std::string>> rows = {
      {"since the last start, means per step" + of_first(run), "planned", "measured", "", "a second"}};
  const double step_s = run.status.step_s.value_or(0);
  for (const Link& link : links_of(h, planned)) {
    if (!(link.measured > 0) && !(link.planned > 0)) continue;
    const bool told = h.measure(link.column).count > 0;  // false if the run's program was too old to record this link
    chart.lines.push_back({link.name, h.of(link.column).points(), static_cast<int>(chart.lines.size())});
    rows.push_back({link.name, size_cell(link.planned), told ? size_cell(link.measured) : "not recorded",
                    told ? difference(link.planned, link.measured) : "",
                    told && step_s > 0 ? format_bytes(static_cast<i64>(link.measured / step_s)) + "/s" : ""});
  }
  if (rows.size() == 1) return section("Bytes a step", "<p>Everything is stored where it is computed: a step moves nothing.</p>\n");
  const std::string drawn = figure(chart);
  std::string text = (drawn.empty() ? "" : "<div class=\"charts\">" + drawn + "</div>\n") + table(rows);
  if (run.status.wear.bytes_per_day > 0) {
    text += fmt::format("<p>Written to nvme: {}.</p>\n", escaped(to_text(run.status.wear, run.status.endurance_bytes)));
  }
  return section("Bytes a step", text);
}

std::string planned_bytes(const RunPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"a step of the first rank", "planned", "a second"}};
  for (const Link& link : links_of({}, plan.moved)) {
    if (link.planned > 0)
      rows.push_back(
          {link.name, size_cell(link.planned), plan.step_s > 0 ? format_bytes(static_cast<i64>(link.planned / plan.step_s)) + "/s" : ""});
  }
  return section("Bytes a step",
                 rows.size() > 1 ? table(rows) : "<p>Everything is stored where it is computed: a step moves nothing.</p>\n");
}

}  // namespace spillway::app
