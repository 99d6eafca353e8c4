#include "app/commands/rehearse_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kShown = 0.005;  // smaller differences from the plan, as a share of its figure, are not shown

double number(const Json& of, const char* key) {
  const Json value = of.value(key, Json());
  return value.is_number() ? value.get<double>() : 0;
}

Json object_of(const std::string& text) {
  const Json value = parse_ordered_json(text);
  return value.is_object() ? value : Json::object();
}

// Returns rows with measured figures only, for a run that did not report the plan's figures.
std::vector<AuditRow> measured_rows(const RehearsalFigures& f) {
  std::vector<AuditRow> rows;
  const Json peak = object_of(f.last).value("peak_bytes", Json::object());
  for (const char* tier : {"device", "host", "nvme"}) {
    if (const double bytes = number(peak, tier); bytes > 0) rows.push_back({std::string("peak ") + tier, 0, bytes, true});
  }
  rows.push_back({"peak process", 0, static_cast<double>(f.process_bytes), true});
  return rows;
}

// Returns one row for the time of a step, then one for the peak of each tier that the plan uses, then one for the peak of the process.
std::vector<AuditRow> planned_rows(const RehearsalFigures& f) {
  const Json last = object_of(f.last);
  std::vector<AuditRow> rows = {{"a step", number(last, "predicted_ms") / 1e3, number(last, "step_ms") / 1e3}};
  const Json audit = object_of(f.summary).value("audit", Json::array());
  for (const Json& row : audit) {
    AuditRow one{row.value("what", ""), number(row, "predicted"), number(row, "measured"), true};
    if (!one.what.starts_with("peak ")) continue;
    if (one.what == "peak process") one.measured = std::max(one.measured, static_cast<double>(f.process_bytes));
    rows.push_back(one);
  }
  if (audit.empty()) std::ranges::copy(measured_rows(f), std::back_inserter(rows));
  return rows;
}

bool is_above(const AuditRow& row) { return row.predicted > 0 && row.measured > row.predicted * (1 + kShown); }

std::vector<std::string> above_plan(const std::vector<AuditRow>& rows) {
  std::vector<std::string> above;
  for (const AuditRow& row : rows) {
    if (is_above(row)) above.push_back(row.what);
  }
  return above;
}

std::string line_of(const AuditRow& row) {
  const auto shown = [&](double value) { return row.bytes ? format_bytes(static_cast<i64>(value)) : format_duration(value); };
  std::string line = fmt::format("    {:<30}{:>12}{:>12}", row.what, row.predicted > 0 ? shown(row.predicted) : "-", shown(row.measured));
  const double off = row.predicted > 0 ? row.measured / row.predicted - 1 : 0;
  if (std::abs(off) >= kShown) line += fmt::format("{:>+7.0f} %{}", 100 * off, is_above(row) ? "  above" : "");
  return line + "\n";
}

std::string differs(size_t step, const char* key, const Json& straight, const Json& killed) {
  return fmt::format("[rehearse] step {}: expected the same {} with and without a kill, got {} without a kill and {} with one", step, key,
                     straight.dump(), killed.dump());
}

}  // namespace

void check_finite(const Rows& rows, bool norms_may) {
  for (const Json& row : rows) {
    for (const char* key : {"loss", "grad_norm", "validation_loss"}) {
      const bool matters = row.contains(key) && (!norms_may || key != std::string("grad_norm"));
      if (!matters || row[key].is_number()) continue;
      throw Error(ErrorCode::numbers,
                  fmt::format("[rehearse] step {}: expected a finite {}, got {}: try a lower --learning-rate or a longer "
                              "--warmup-steps, and look at the data",
                              row.value("step", i64{0}), key, row.value("nonfinite", "none")));
    }
  }
}

i64 compare_numbers(const Rows& straight, const Rows& killed) {
  const size_t steps = std::min(straight.size(), killed.size());
  if (steps == 0) throw Error(ErrorCode::numbers, "[rehearse] expected steps to compare, got none");
  for (size_t s = 0; s < steps; ++s) {
    for (const char* key : {"loss", "grad_norm"}) {
      const Json a = straight[s].value(key, Json()), b = killed[s].value(key, Json());
      if (a != b) throw Error(ErrorCode::numbers, differs(s + 1, key, a, b));
    }
  }
  return static_cast<i64>(steps);
}

std::string to_json(const RehearsalFigures& f) {
  const std::vector<AuditRow> rows = planned_rows(f);
  const Json last = object_of(f.last), summary = object_of(f.summary);
  Json all = {{"steps_compared", f.steps},
              {"step_ms", last.value("step_ms", Json())},
              {"predicted_ms", last.value("predicted_ms", Json())},
              {"peak_bytes", last.value("peak_bytes", Json())},
              {"process_peak_bytes", f.process_bytes},
              {"save", f.save},
              {"checkpoint_bytes", f.checkpoint_bytes}};
  if (summary.contains("validation_loss")) all["validation_loss"] = summary["validation_loss"];
  for (const AuditRow& row : rows)
    all["plan"].push_back({{"what", row.what},
                           {"planned", row.predicted > 0 ? Json(row.predicted) : Json()},
                           {"measured", row.measured},
                           {"unit", row.bytes ? "bytes" : "s"}});
  all["above_plan"] = above_plan(rows);
  if (!f.left_out.empty()) all["left_out"] = f.left_out;
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const RehearsalFigures& f) {
  const std::vector<AuditRow> rows = planned_rows(f);
  const Json summary = object_of(f.summary);
  std::string text = fmt::format("rehearsed: {} step{} with the same bits after kill -9 as without it\n", f.steps, f.steps == 1 ? "" : "s");
  if (!f.after_kill) text += "  the run ended before it could be killed: give more --steps to rehearse a kill\n";
  text += fmt::format("    {:<30}{:>12}{:>12}\n", "", "planned", "measured");
  for (const AuditRow& row : rows) text += line_of(row);
  text += fmt::format("  a save: {}; {} on disk\n", f.save.empty() ? "not timed" : f.save, format_bytes(f.checkpoint_bytes));
  if (summary.contains("validation_loss"))
    text += fmt::format("  a validation: loss {:.4f} of one micro-batch\n", number(summary, "validation_loss"));
  if (!f.left_out.empty()) text += "  not rehearsed: " + f.left_out + "\n";
  const std::vector<std::string> above = above_plan(rows);
  text += above.empty() ? "  nothing exceeded the plan" : fmt::format("  these exceeded the plan: {}", fmt::join(above, ", "));
  return text;
}

}  // namespace spillway::app
