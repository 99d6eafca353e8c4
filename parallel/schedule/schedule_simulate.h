// What a pipeline schedule takes, before anything runs: every rank goes through its row in order, an action starts when the rank is free
// and what it needs has come. Pure functions; thread-safe. Linear in the number of actions.
#pragma once
#include <vector>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// A time is 0 or in these limits: sums of any number of them are then finite, and their ratios numbers.
constexpr double kLeastCost = 1e-9, kMostCost = 1e9;

/// Of one stage, in any unit of time; as they stand, slots: every action takes one, as in torch.distributed.pipelining's tables.
struct StageCosts {
  double forward = 1, backward = 1, backward_input = 1, backward_weight = 1;
  double of(ActionKind kind) const;  // 0 for idle
  bool operator==(const StageCosts&) const = default;
};

struct ScheduleCosts {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  // one for all stages, or one each
  double transfer = 0;  // of an activation or its gradient to another rank; the rank itself goes on meanwhile
  /// Share of what a forward kept that W still needs after I, from 0 to 1. 1 is the safe count: I frees nothing.
  double kept_for_weight = 1;
  const StageCosts& of(u16 stage) const { return stages[stages.size() == 1 ? 0 : stage]; }
  bool operator==(const ScheduleCosts&) const = default;
};

struct ActionTime {
  double start = 0, end = 0;
};

struct RankTimes {
  double start = 0, end = 0;  // of the rank's first action, of its last
  double busy = 0;
  /// The most activations held at once. One is what a stage keeps of a micro-batch: held from the start of F to the end of B; with B split,
  /// whole to the end of I and kept_for_weight of it from there to the end of W. With several chunks a rank each chunk's counts as one.
  double peak_activations = 0;
  double idle_inside() const { return end - start - busy; }
};

struct ScheduleTimes {
  std::vector<std::vector<ActionTime>> actions;  // as the rows; an idle slot has none of its own
  std::vector<RankTimes> ranks;
  double makespan = 0;
  double idle(i64 rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  /// Idle time's share of all ranks' time, from 0 to 1.
  double bubble() const;
};

/// An action needs: F the stage's before F; B and I the stage's behind B or I (each of the same micro-batch, a transfer later where that is
/// another rank), and what stands before it in its row. An overlapped pair starts when both can and takes the time of both, F's first. Idle
/// slots of the schedule take no time: idle is what comes out. Expects what check_schedule() found whole; throws Error(data) naming the
/// ranks that wait in a circle, Error(usage) on times outside their limits, and on costs that are neither one nor one a stage.
ScheduleTimes simulate_schedule(const Schedule& schedule, const ScheduleCosts& costs = {});

/// The schedule with its idle slots when each action takes one slot (an overlapped pair: its cell and an empty one).
Schedule with_idle(const Schedule& schedule);

}  // namespace spillway::parallel
