// What each rank of a pipeline computes, in which order: a table, as torch.distributed.pipelining knows it, before memory and moving are
// planned. Made by schedule_generate.h or read by schedule_csv.h, proved by schedule_check.h, timed by schedule_simulate.h. A stage here is
// one chunk of the model: a rank holds one or several. Values; thread-safe to read.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::parallel {

/// backward (B) makes the gradients of a stage's input and weights at once; split (Zero Bubble), backward_input (I) makes the first, which
/// the stage before waits for, and backward_weight (W) the second, which nobody does.
enum class ActionKind : u8 { idle, forward, backward, backward_input, backward_weight };

/// 'F', 'B', 'I', 'W'; ' ' for idle.
char letter(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::idle;  // an idle slot has no stage and no micro-batch
  bool overlaps_next = false;          // a forward that shares its cell with the backward behind it: both start when both can
  u16 stage = 0, micro_batch = 0;
  bool operator==(const Action&) const = default;
};

/// "3F0": stage, letter, micro-batch; "" for idle.
std::string to_string(const Action& action);

using ScheduleRow = std::vector<Action>;

/// The most a schedule may hold, all ranks together (idle slots too): what its times take then still fits a laptop.
constexpr i64 kMostActions = i64{1} << 24;
/// Stages, micro-batches and ranks are 16 bits wide.
constexpr i64 kMostStages = 65536, kMostMicroBatches = 65536;

struct Schedule {
  std::string name;  // a generator's, or the file it came from
  i32 micro_batches = 0;
  std::vector<u16> rank_of;       // by stage
  std::vector<ScheduleRow> rows;  // by rank

  i32 ranks() const { return static_cast<i32>(rows.size()); }
  i32 stages() const { return static_cast<i32>(rank_of.size()); }
  /// Some backward comes in two parts, I and W.
  bool splits_backward() const;
  /// The most stages one rank holds.
  i32 chunks() const;
  /// Of each stage: how many stages of its rank come before it.
  std::vector<i32> chunk_of() const;
  bool operator==(const Schedule&) const = default;
};

/// The cell of a row that its action `index` lies in, from 0: an overlapped pair is one cell.
i64 cell_of(const ScheduleRow& row, size_t index);
/// "[schedule] x.csv, row 2, column 5": both counted from 1, as editors do.
std::string at_cell(const Schedule& schedule, i64 rank, i64 cell);

Schedule without_idle(Schedule schedule);

}  // namespace spillway::parallel
