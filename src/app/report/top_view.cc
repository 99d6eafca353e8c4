#include "app/report/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/report/axis.h"
#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "trainer/node/host.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr i64 kTail = 256 * kKiB;
constexpr size_t kShown = 120;  // most steps whose metrics are shown
constexpr std::uintmax_t kMostConfigOfTop = 16 * kMiB;

std::vector<MetricsLine> last_lines(const fs::path& file) {
  std::istringstream in(read_tail(file, kTail));
  std::vector<MetricsLine> lines;
  MetricsLine line;
  for (std::string text; std::getline(in, text);) {
    if (parse_metrics_line(text, line)) lines.push_back(line);
  }
  if (lines.size() > kShown) lines.erase(lines.begin(), lines.end() - kShown);
  return lines;
}

std::optional<double> age_of(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error) return {};
  return std::max(0.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count());
}

// Draws `share` (0 to 1) as a bar that is `cells` characters wide, in steps of an eighth of a character.
std::string bar(double share, size_t cells) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(8 * cells)));
  std::string text;
  for (size_t n = 0; n < eighths / 8; ++n) text += "█";
  text += kEighths[eighths % 8];
  return text + std::string(cells - eighths / 8 - (eighths % 8 > 0), ' ');
}

// Draws the values as a sparkline with one character for each value. The least value gets the lowest character.
std::string sparks(const std::vector<double>& values) {
  constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty()) return "";
  const auto [low, high] = std::ranges::minmax(values);
  std::string text;
  for (const double value : values)
    text += kHeights[high > low ? std::min<size_t>(7, static_cast<size_t>(8 * (value - low) / (high - low))) : 3];
  return text;
}

double number_of(const TopView& view, const char* name) { return view.last.empty() ? std::nan("") : view.last.back()[metric(name)]; }

std::string first_line(const TopView& v) {
  const RunStatus& s = v.status;
  std::string text = fmt::format("{}  {}  step {}", v.name, to_string(s.state), s.step);
  if (s.steps) text += fmt::format(" of {}", *s.steps);
  if (s.ranks > 1) text += fmt::format("  on {} ranks", s.ranks);
  return s.owner.empty() ? text : text + "  (" + s.owner + ")";
}

std::string left_text(const RunStatus& s) {
  if (s.state == RunStatus::State::finished) return "done";
  if (!s.left_s) return "";
  return (s.state == RunStatus::State::running ? "left " : "left when resumed ") + format_duration(*s.left_s);
}

std::string progress_bar(const RunStatus& s, size_t columns) {
  if (!s.steps || *s.steps < 1) return "";
  const double share = static_cast<double>(s.step) / static_cast<double>(*s.steps);
  const std::string words = fmt::format("  {:3.0f} %  {}", 100 * share, left_text(s));
  return columns > words.size() + 12 ? "[" + bar(share, columns - words.size() - 2) + "]" + words : words;
}

std::string numbers_line(const TopView& v) {
  std::string text = v.status.loss ? fmt::format("loss {:.4f}", *v.status.loss) : "loss: not finite, or no step yet";
  if (v.status.validation_loss) text += fmt::format("  validation {:.4f}", *v.status.validation_loss);
  if (const double norm = number_of(v, "grad_norm"); std::isfinite(norm)) text += fmt::format("  norm {:.3f}", norm);
  if (const double rate = number_of(v, "lr"); std::isfinite(rate)) text += fmt::format("  lr {:.2e}", rate);
  return text;
}

std::string pace_line(const TopView& v) {
  if (!v.status.step_s) return "no step has ended yet";
  std::string text = fmt::format("{} a step  {}", shown(*v.status.step_s, Unit::seconds), tokens_per_s_text(v.status));
  if (!v.last.empty() && !v.last.back().bound_by.empty()) text += "  bound by " + v.last.back().bound_by;
  if (v.plan && v.plan->step_s > 0) text += "  planned " + shown(v.plan->step_s, Unit::seconds);
  if (v.status.last_step_age_s && v.status.state == RunStatus::State::running)
    text += "  last step " + format_duration(*v.status.last_step_age_s) + " ago";
  return text;
}

void add_tiers(std::vector<std::string>& lines, const TopView& v, size_t columns) {
  if (!v.status.tier_bytes) return;
  constexpr const char* kNames[] = {"device", "host", "nvme"};
  const std::string rank = v.status.ranks > 1 ? "first rank" : "";
  lines.push_back(fmt::format("{:<11}{:>11}{:>11}{:>11}{:>11}", rank, "held", "peak", "planned", "budget"));
  for (size_t t = 0; t < offload::kTiers; ++t) {
    const i64 peak = v.status.peak_bytes ? (*v.status.peak_bytes)[t] : 0, budget = v.plan ? v.plan->budget[t] : 0;
    if (peak == 0 && budget == 0) continue;
    std::string line =
        fmt::format("  {:<9}{:>11}{:>11}{:>11}{:>11}", kNames[t], format_bytes((*v.status.tier_bytes)[t]), format_bytes(peak),
                    v.plan ? format_bytes(v.plan->total[t]) : "-", budget > 0 ? format_bytes(budget) : "-");
    if (budget > 0 && columns > line.size() + 14)
      line += "  [" + bar(static_cast<double>(peak) / static_cast<double>(budget), std::min<size_t>(30, columns - line.size() - 5)) + "]";
    lines.push_back(line);
  }
}

void add_lanes(std::vector<std::string>& lines, const TopView& v, size_t columns) {
  const double step_ms = number_of(v, "step_ms");
  if (!(step_ms > 0)) return;
  std::vector<std::string> rows;
  for (int l = 0; l < parallel::kLanes; ++l) {
    const std::string lane(to_string(static_cast<parallel::Lane>(l)));
    const double share = v.last.back()[metric("phase_ms.lane_" + lane)] / step_ms;
    if (share > 0.0005)
      rows.push_back(
          fmt::format("  {:<10}{:>4.0f} %  [{}]", lane, 100 * share, bar(share, std::min<size_t>(40, columns > 30 ? columns - 24 : 8))));
  }
  if (rows.empty()) return;
  lines.push_back("lanes, busy share of the last step");
  lines.insert(lines.end(), rows.begin(), rows.end());
}

std::string rates_line(const RunStatus& s) {
  if (!s.step_s || !(*s.step_s > 0)) return "";
  std::string text;
  const auto add = [&](const char* what, i64 bytes) {
    if (bytes > 0) text += fmt::format("  {} {}/s", what, format_bytes(static_cast<i64>(static_cast<double>(bytes) / *s.step_s)));
  };
  add("host read", s.read_bytes[1]), add("written", s.written_bytes[1]);
  add("nvme read", s.read_bytes[2]), add("written", s.written_bytes[2]);
  return text.empty() ? "" : "moves" + text;
}

std::string ranks_line(const TopView& v) {
  if (v.status.ranks < 2 || !v.status.slowest_rank) return "";
  const double waits = number_of(v, "slowest_rank_waits");
  return fmt::format("ranks: the other ranks wait most often for rank {}{}", *v.status.slowest_rank,
                     std::isfinite(waits) ? fmt::format(", which itself waits {:.0f} % of the step", 100 * waits) : "");
}

std::string save_line(const TopView& v) {
  const std::string next = next_save(v);
  std::string text = v.status.checkpoint
                         ? fmt::format("saved: step {}, {} ago", v.status.checkpoint->step, format_duration(v.status.checkpoint->age_s))
                         : "saved: nothing yet";
  return v.status.state == RunStatus::State::running && !next.empty() ? text + "  next " + next : text;
}

void add_sparks(std::vector<std::string>& lines, const TopView& v, size_t columns) {
  std::vector<double> losses;
  const size_t column = metric("loss"), most = columns > 12 ? columns - 8 : 4;
  for (const MetricsLine& line : v.last) {
    if (line.has(column)) losses.push_back(line[column]);
  }
  if (losses.size() > most) losses.erase(losses.begin(), losses.end() - static_cast<std::ptrdiff_t>(most));
  if (losses.size() > 1) lines.push_back("loss  " + sparks(losses));
}

}  // namespace

TopView look_at(const fs::path& run) {
  TopView view;
  view.name = run.string();
  view.status = read_run_status(run);
  view.plan = read_run_plan(run);
  view.last = last_lines(run / "metrics.jsonl");
  view.since_start = age_of(run / "config.json");
  std::error_code error;
  if (const auto size = fs::file_size(run / "config.json", error); error || size > kMostConfigOfTop) return view;
  const auto config = parse_json(read_whole(run / "config.json").value_or(""));
  if (config.is_object() && config.contains("checkpoint_every") && config["checkpoint_every"].is_string())
    view.save_every = config["checkpoint_every"].get<std::string>();
  return view;
}

std::string next_save(const TopView& v) {
  if (v.save_every.empty()) return "";
  Cadence every;
  try {
    every = parse_cadence(v.save_every, "checkpoint_every");
  } catch (const Error&) {  // another version of the program wrote the value in a form that this version does not know
    return "";
  }
  if (every.count < 1 || every.unit == Cadence::Unit::epochs) return "after each " + v.save_every;
  if (every.unit == Cadence::Unit::steps) {
    const i64 next = (v.status.step / every.count + 1) * every.count;
    return v.status.steps && next >= *v.status.steps ? fmt::format("at the end, step {}", *v.status.steps)
                                                     : fmt::format("at step {}", next);
  }
  double since = v.since_start.value_or(0);
  if (v.status.checkpoint) since = std::min(since, v.status.checkpoint->age_s);
  const double left = std::max(0.0, static_cast<double>(every.count) - since);
  return v.status.left_s && *v.status.left_s < left ? "at the end, in " + format_duration(*v.status.left_s) : "in " + format_duration(left);
}

std::string top_line(const TopView& v) {
  const RunStatus& s = v.status;
  std::string text = fmt::format("{} step {}", to_string(s.state), s.step);
  if (s.steps) text += fmt::format("/{}", *s.steps);
  for (const std::string& part : {numbers_line(v), pace_line(v), left_text(s)}) {
    if (!part.empty()) text += "  " + part;
  }
  if (s.tier_bytes)
    text += fmt::format("  device {}  host {}  nvme {}", format_bytes((*s.tier_bytes)[0]), format_bytes((*s.tier_bytes)[1]),
                        format_bytes((*s.tier_bytes)[2]));
  if (const std::string next = next_save(v); s.state == RunStatus::State::running && !next.empty()) text += "  next save " + next;
  return text;
}

std::vector<std::string> top_screen(const TopView& v, size_t columns) {
  std::vector<std::string> lines = {first_line(v), progress_bar(v.status, columns), numbers_line(v), pace_line(v)};
  add_sparks(lines, v, columns);
  lines.emplace_back();
  add_tiers(lines, v, columns);
  lines.push_back(rates_line(v.status));
  add_lanes(lines, v, columns);
  lines.push_back(ranks_line(v));
  lines.push_back(save_line(v));
  const auto blank = [](const std::string& a, const std::string& b) { return a.empty() && b.empty(); };
  lines.erase(std::unique(lines.begin(), lines.end(), blank), lines.end());
  return lines;
}

}  // namespace spillway::app
