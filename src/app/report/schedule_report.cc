#include "app/report/schedule_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/names/names.h"
#include "parallel/schedule/schedule_check.h"
#include "trainer/settings/schedule_costs.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;
using parallel::ActionKind;
using parallel::RankTimes;
using parallel::Schedule;
using parallel::ScheduleRow;

// Returns the text of action `i` in the table. In an overlapped pair of forward and backward, the second action is marked with "+".
std::string label(const ScheduleRow& row, size_t i) { return (i > 0 && row[i - 1].overlaps_next ? "+" : "") + parallel::to_string(row[i]); }

// Returns whether every time is a whole number, so that a column of the table can be one unit of time.
bool on_columns(const ScheduleReport& report) {
  const auto whole = [](double x) { return x == std::floor(x) && x < 1e6; };
  return whole(report.costs.transfer) && std::ranges::all_of(report.times.actions, [&](const auto& row) {
           return std::ranges::all_of(row, [&](const auto& time) { return whole(time.start) && whole(time.end); });
         });
}

bool takes_time(const ScheduleReport& report) {
  for (size_t r = 0; r < report.schedule.rows.size(); ++r) {
    const ScheduleRow& row = report.schedule.rows[r];
    for (size_t i = 0; i < row.size(); ++i) {
      const auto& time = report.times.actions[r][i];
      if (row[i].kind != ActionKind::idle && time.end <= time.start) return false;
    }
  }
  return true;
}

std::vector<std::string> columns(const ScheduleReport& report, size_t rank) {
  std::vector<std::string> cells(static_cast<size_t>(report.times.makespan), ".");
  const ScheduleRow& row = report.schedule.rows[rank];
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].kind == ActionKind::idle) continue;
    const auto& time = report.times.actions[rank][i];
    for (auto slot = static_cast<size_t>(time.start); slot < static_cast<size_t>(time.end); ++slot) cells[slot] = "-";
    cells[static_cast<size_t>(time.start)] = label(row, i);
  }
  return cells;
}

std::vector<std::string> in_order(const ScheduleRow& row) {
  std::vector<std::string> cells;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].kind != ActionKind::idle) cells.push_back(label(row, i));
  }
  return cells;
}

// Returns one line for each rank. If these are longer than `columns`, they are cut between cells and their parts stand below each other.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t columns) {
  constexpr size_t kNameColumns = 8;
  size_t width = 0, most = 0;
  for (const auto& row : rows) {
    most = std::max(most, row.size());
    for (const auto& cell : row) width = std::max(width, cell.size());
  }
  const size_t part = columns > kNameColumns ? std::max<size_t>(1, (columns - kNameColumns) / (width + 1)) : most;
  std::string text;
  for (size_t begin = 0; begin == 0 || begin < most; begin += part) {
    if (begin > 0) text += "\n";
    for (size_t r = 0; r < rows.size(); ++r) {
      text += fmt::format("rank {:<3}", r);
      for (size_t c = begin; c < std::min(begin + part, rows[r].size()); ++c) text += fmt::format(" {:>{}}", rows[r][c], width);
      text += "\n";
    }
  }
  return text;
}

std::string table(const ScheduleReport& report, size_t width) {
  const i64 actions = action_count(report.schedule), ranks = report.schedule.ranks();
  if (actions > kMostShownActions)
    return fmt::format("the table of {} actions is too long to print; --csv X.csv writes it to a file\n", actions);
  const bool wide = report.times.makespan * static_cast<double>(ranks) > 4.0 * kMostShownActions;
  const bool timed = !wide && on_columns(report) && takes_time(report);
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < report.schedule.rows.size(); ++r) rows.push_back(timed ? columns(report, r) : in_order(report.schedule.rows[r]));
  const char* said = "actions in order, not by time, because the times are not whole numbers (--out X.svg draws them by time):\n";
  return (timed ? "" : wide ? "actions in order:\n" : said) + aligned(rows, width);
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string ranks_text(const ScheduleReport& report) {
  std::string text = fmt::format("{:<10}{:>10}{:>10}{:>14}{:>18}\n", "", "busy", "idle", "idle inside", "peak activations");
  for (i64 r = 0; r < report.schedule.ranks(); ++r) {
    const RankTimes& rank = report.times.ranks[static_cast<size_t>(r)];
    text += fmt::format("rank {:<5}{:>10}{:>10}{:>14}{:>18}\n", r, number(rank.busy), number(report.times.idle(r)),
                        number(rank.idle_inside()), number(rank.peak_activations));
  }
  return text;
}

std::string plural(i64 count, const char* thing, const char* ending = "s") {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : ending);
}

}  // namespace

i64 action_count(const Schedule& schedule) {
  i64 count = 0;
  for (const ScheduleRow& row : schedule.rows) {
    count += std::ranges::count_if(row, [](const auto& action) { return action.kind != ActionKind::idle; });
  }
  return count;
}

std::string schedule_text(const ScheduleReport& report, size_t width) {
  const Schedule& schedule = report.schedule;
  const auto reason = parallel::why_not_executable(schedule);
  const int chunks = schedule.chunks();
  std::string text = fmt::format("{}: {}, {} a rank, {}; times {}\n\n", schedule.name, plural(schedule.ranks(), "rank"),
                                 plural(chunks, "stage"), plural(schedule.micro_batches, "micro-batch", "es"), print_costs(report.costs));
  text += table(report, width) + "\n" + ranks_text(report);
  text += fmt::format("\nmakespan {}, bubble {:.1f} % of the ranks' time\n", number(report.times.makespan), 100 * report.times.bubble());
  text += "idle inside: idle time between a rank's first and last action; one activation is what a stage stores for one micro-batch";
  text += chunks > 1 ? fmt::format(", a {} of what a rank would store with one stage\n", chunks == 2 ? "half" : fmt::format("1/{}", chunks))
                     : "\n";
  return text + (reason ? "not executable: " + *reason + "\n" : "executable: weight gradients come in ascending micro-batch order\n");
}

std::string schedule_json(const ScheduleReport& report) {
  const Schedule& schedule = report.schedule;
  const auto reason = parallel::why_not_executable(schedule);
  Json all = {{"schedule", schedule.name},
              {"ranks", schedule.ranks()},
              {"chunks", schedule.chunks()},
              {"micro_batches", schedule.micro_batches},
              {"stage_to_rank", schedule.rank_of},
              {"costs", print_costs(report.costs)},
              {"makespan", report.times.makespan},
              {"bubble", report.times.bubble()},
              {"executable", !reason},
              {"why_not", reason ? Json(*reason) : Json()},
              {"rank_times", Json::array()}};
  for (i64 r = 0; r < schedule.ranks(); ++r) {
    const RankTimes& rank = report.times.ranks[static_cast<size_t>(r)];
    all["rank_times"].push_back({{"start", rank.start},
                                 {"end", rank.end},
                                 {"busy", rank.busy},
                                 {"idle", report.times.idle(r)},
                                 {"idle_inside", rank.idle_inside()},
                                 {"peak_activations", rank.peak_activations}});
  }
  all["table"] = Json();
  if (action_count(schedule) <= kMostShownActions) {
    all["table"] = Json::array();
    for (const ScheduleRow& row : schedule.rows) all["table"].push_back(in_order(row));
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace spillway::app
