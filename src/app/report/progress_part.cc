// Shows the progress of a run: the cards with its main numbers, and the charts that several runs share.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "app/report/chart.h"
#include "app/report/html.h"
#include "app/report/page_parts.h"
#include "base/units.h"
#include "trainer/settings/option.h"

namespace spillway::app {
namespace {

bool reads_images(const ReportedRun& run) { return run.history.measure("validation_accuracy").count > 0; }

std::string card(const std::string& value, const std::string& words) {
  return "<div><b>" + value + "</b><span>" + words + "</span></div>\n";
}

std::string at_step(const Point& point) { return fmt::format("at step {:.0f}", point.step); }

double per_s(const ReportedRun& run, i64 count) { return run.history.seconds > 0 ? static_cast<double>(count) / run.history.seconds : 0; }
double tokens_per_s(const ReportedRun& run) { return per_s(run, run.history.tokens); }

bool has_padding(const ReportedRun& run) { return run.history.positions > run.history.tokens; }

// Wanted describes a chart to draw: one metric with a line for each run, and with `also` a second metric. With several runs the line of
// the second metric is dashed and has the colour of its run.
struct Wanted {
  const char *title, *what, *metric;
  Unit unit = Unit::number;
  bool from_zero = false;
  const char* also = nullptr;  // a second metric on the same axis, or null
  const char *name = "", *also_name = "";
  bool also_dashed = false;
};

void add_lines(Chart& chart, std::span<const ReportedRun> runs, const Wanted& wanted, double scale) {
  for (size_t r = 0; r < runs.size(); ++r) {
    const bool one = runs.size() == 1;
    const auto add = [&](const char* metric, const char* name, bool second) {
      const Series& series = runs[r].history.of(metric);
      ChartLine line{one ? name : runs[r].name + (second ? fmt::format(" ({})", name) : ""), series.points(),
                     static_cast<int>(one ? (second ? 1 : 0) : r % kLineColours), second && (!one || wanted.also_dashed), second};
      line.dashed |= !one && r >= kLineColours;
      for (Point& p : line.points) p.value *= scale;
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    };
    add(wanted.metric, *wanted.name ? wanted.name : wanted.title, false);
    if (wanted.also) add(wanted.also, wanted.also_name, true);
  }
}

std::string chart_of(std::span<const ReportedRun> runs, const Wanted& wanted, double scale = 1, bool strip = false) {
  Chart chart;
  chart.title = wanted.title;
  chart.what = wanted.what;
  chart.unit = wanted.unit;
  chart.from_zero = wanted.from_zero;
  add_lines(chart, runs, wanted, scale);
  if (strip && runs.size() == 1) {
    for (const History::Bound& piece : runs[0].history.bounds)
      chart.strip.push_back({static_cast<double>(piece.first), static_cast<double>(piece.last), piece.by});
  }
  return figure(chart);
}

// Returns a table of the flags that differ between the runs. Flags that only say where a run is stored or what it prints are left out.
std::string differences(std::span<const ReportedRun> runs) {
  const std::vector<std::string> dull = keys_with(Command::train, &Option::not_compared);
  std::vector<std::vector<std::string>> rows(1, {"flag"});
  for (const ReportedRun& run : runs) rows[0].push_back(escaped(run.name));
  const auto value_in = [](const ReportedRun& run, const std::string& key) {
    const auto found = std::ranges::find(run.config, key, [](const auto& entry) { return entry.first; });
    return found == run.config.end() ? std::string("-") : found->second;
  };
  std::set<std::string> seen;
  for (const ReportedRun& of : runs) {
    for (const auto& entry : of.config) {
      const std::string& key = entry.first;
      if (std::ranges::find(dull, key) != dull.end() || !seen.insert(key).second) continue;
      std::vector<std::string> row{escaped(key)};
      for (const ReportedRun& run : runs) row.push_back(escaped(value_in(run, key)));
      if (std::ranges::adjacent_find(row.begin() + 1, row.end(), std::ranges::not_equal_to()) != row.end()) rows.push_back(std::move(row));
    }
  }
  return rows.size() == 1 ? "<p>All flags are the same.</p>\n" : table(rows, runs.size() + 1);
}

std::string number_cell(const Measure& measure, const Point& point, const char* format) {
  return measure.count == 0 ? "-" : exact(point.value, fmt::format(fmt::runtime(format), point.value));
}

}  // namespace

std::string summary_cards(const ReportedRun& run) {
  const History& h = run.history;
  const RunStatus& s = run.status;
  std::string text = card(s.steps ? fmt::format("{} of {}", h.last_step, *s.steps) : std::to_string(h.last_step),
                          fmt::format("steps, {}{}", to_string(s.state), s.owner.empty() ? "" : " (" + escaped(s.owner) + ")"));
  if (run.plan) {
    const std::string ranks = run.plan->ranks > 1 ? fmt::format(", {} ranks", run.plan->ranks) : "";
    text += card(escaped(run.plan->model), fmt::format("{} of {} parameters trained{}", run.plan->trained, run.plan->parameters, ranks));
  }
  if (h.steps == 0) return "<div class=\"cards\">\n" + text + "</div>\n<p>No step has ended yet.</p>\n";
  if (const Measure& loss = h.measure("loss"); loss.count > 0) {
    text += card(exact(loss.last.value, fmt::format("{:.4f}", loss.last.value)), "loss " + at_step(loss.last));
    text += card(exact(loss.least.value, fmt::format("{:.4f}", loss.least.value)), "lowest loss, " + at_step(loss.least));
  }
  if (const Measure& held = h.measure("validation_loss"); held.count > 0) {
    text += card(exact(held.least.value, fmt::format("{:.4f}", held.least.value)), "best validation loss, " + at_step(held.least));
    text += card(exact(held.last.value, fmt::format("{:.4f}", held.last.value)), "validation loss " + at_step(held.last));
  }
  if (const Measure& right = h.measure("validation_accuracy"); right.count > 0)
    text += card(exact(right.most.value, fmt::format("{:.2f} %", 100 * right.most.value)), "best accuracy, " + at_step(right.most));
  const char* what = reads_images(run) ? "images" : "tokens";
  if (h.seconds > 0) {
    text += card(exact(tokens_per_s(run), shown(tokens_per_s(run), Unit::count)), fmt::format("{}/s, mean of the steps", what));
    if (has_padding(run))
      text += card(exact(per_s(run, h.positions), shown(per_s(run, h.positions), Unit::count)), "positions/s: tokens with padding");
    text += card(format_duration(h.seconds), "spent in steps");
  }
  text += card(exact(static_cast<double>(h.tokens), shown(static_cast<double>(h.tokens), Unit::count)),
               fmt::format("{} in {} steps", what, h.steps));
  if (has_padding(run))
    text += card(exact(static_cast<double>(h.positions), shown(static_cast<double>(h.positions), Unit::count)),
                 "positions: tokens with padding");
  if (s.left_s && s.state == RunStatus::State::running) text += card(format_duration(*s.left_s), "left at this pace");
  if (h.clipped > 0) text += card(std::to_string(h.clipped), "steps clipped");
  if (h.skipped > 0) text += card(std::to_string(h.skipped), "steps skipped");
  if (h.not_finite > 0) text += card(std::to_string(h.not_finite), "steps with a number that is not finite");
  if (h.starts.size() > 1) text += card(std::to_string(h.starts.size()), "starts");
  if (s.checkpoint) text += card(fmt::format("step {}", s.checkpoint->step), "last durable checkpoint");
  return "<div class=\"cards\">\n" + text + "</div>\n";
}

std::string progress_charts(std::span<const ReportedRun> runs) {
  const bool images = std::ranges::any_of(runs, reads_images);
  std::string text = chart_of(runs, {"Loss", "Training loss of each step, and validation loss where it was computed.", "loss", Unit::number,
                                     false, "validation_loss", "training", "validation"});
  text +=
      chart_of(runs, {"Accuracy on validation data", "Share of validation samples that were classified correctly.", "validation_accuracy"});
  text += chart_of(runs, {"Gradient norm, before clipping", "Norm of the gradient of each step.", "grad_norm", Unit::number, true});
  text += chart_of(runs, {"Learning rate", "Learning rate of each step.", "lr", Unit::number, true});
  Wanted speed{images ? "Images a second" : "Tokens a second", "Speed of each step. The strip below shows what limited it.", "tokens_per_s",
               Unit::count, true};
  if (std::ranges::any_of(runs, has_padding)) {
    speed.what = "Speed of each step, without and with padding. The strip below shows what limited it.";
    speed.also = "positions_per_s", speed.name = "tokens", speed.also_name = "with padding", speed.also_dashed = true;
  }
  text += chart_of(runs, speed, 1, true);
  text += chart_of(runs,
                   {"Time of a step", "Time that each step took, and time that the plan predicted.", "step_ms", Unit::seconds, true,
                    "predicted_ms", "measured", "predicted", true},
                   1e-3);
  return text.empty() ? "" : section("Progress", "<div class=\"charts\">\n" + text + "</div>\n");
}

std::string comparison(std::span<const ReportedRun> runs) {
  std::vector<std::vector<std::string>> rows(1, {"run", "state", "steps", "loss", "lowest loss", "best validation loss", "tokens/s",
                                                 "tokens", "time in steps", "peak device", "peak host", "on nvme"});
  for (const ReportedRun& run : runs) {
    const History& h = run.history;
    std::vector<std::string> row = {escaped(run.name), to_string(run.status.state), std::to_string(h.last_step)};
    if (h.steps > 0) {
      const Measure &loss = h.measure("loss"), &held = h.measure("validation_loss");
      row.push_back(number_cell(loss, loss.last, "{:.4f}"));
      row.push_back(number_cell(loss, loss.least, "{:.4f}"));
      row.push_back(number_cell(held, held.least, "{:.4f}"));
      row.push_back(exact(tokens_per_s(run), shown(tokens_per_s(run), Unit::count)));
      row.push_back(exact(static_cast<double>(h.tokens), shown(static_cast<double>(h.tokens), Unit::count)));
      row.push_back(format_duration(h.seconds));
      for (const char* tier : {"device", "host", "nvme"})
        row.push_back(shown(h.measure(std::string("peak_bytes.") + tier).most.value, Unit::bytes));
    }
    row.resize(rows[0].size(), "-");
    rows.push_back(std::move(row));
  }
  return section("Runs", table(rows, 2)) + section("What differs", differences(runs));
}

}  // namespace spillway::app
