#include "parallel/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::parallel {

char letter(ActionKind kind) { return " FBIW"[static_cast<size_t>(kind)]; }

std::string to_string(const Action& action) {
  if (action.kind == ActionKind::idle) return "";
  return fmt::format("{}{}{}", action.stage, letter(action.kind), action.micro_batch);
}

bool Schedule::splits_backward() const {
  const auto split = [](const Action& a) { return a.kind == ActionKind::backward_weight; };
  return std::ranges::any_of(rows, [&](const ScheduleRow& row) { return std::ranges::any_of(row, split); });
}

i32 Schedule::chunks() const {
  const std::vector<i32> chunks = chunk_of();
  return chunks.empty() ? 0 : *std::ranges::max_element(chunks) + 1;
}

std::vector<i32> Schedule::chunk_of() const {
  std::vector<i32> held(rows.size(), 0), chunks;
  for (const u16 rank : rank_of) chunks.push_back(held[rank]++);
  return chunks;
}

i64 cell_of(const ScheduleRow& row, size_t index) {
  const auto pairs = std::count_if(row.begin(), row.begin() + static_cast<i64>(index), [](const Action& a) { return a.overlaps_next; });
  return static_cast<i64>(index) - pairs;
}

std::string at_cell(const Schedule& schedule, i64 rank, i64 cell) {
  return fmt::format("[schedule] {}, row {}, column {}", schedule.name, rank + 1, cell + 1);
}

Schedule without_idle(Schedule schedule) {
  for (ScheduleRow& row : schedule.rows) {
    std::erase_if(row, [](const Action& action) { return action.kind == ActionKind::idle; });
  }
  return schedule;
}

}  // namespace spillway::parallel
