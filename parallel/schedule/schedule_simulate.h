// Computes how long a pipeline schedule takes, without running it. Every rank goes through its row in order. An action starts when its rank
// is free and its inputs have arrived. Pure functions; thread-safe. The time is linear in the number of actions.
#pragma once
#include <vector>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// A cost is either 0 or between these limits. Sums of any number of costs are then finite, and ratios of costs are valid numbers.
constexpr double kLeastCost = 1e-9, kMostCost = 1e9;

/// Holds the costs of the actions of one stage, in any unit of time. By default every action takes one unit, as in the tables of
/// torch.distributed.pipelining.
struct StageCosts {
  double forward = 1, backward = 1, backward_input = 1, backward_weight = 1;
  double of(ActionKind kind) const;  // returns the cost of an action; 0 for idle
  bool operator==(const StageCosts&) const = default;
};

struct ScheduleCosts {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  // one entry that holds for all stages, or one entry per stage
  double transfer = 0;  // time in which an activation or its gradient reaches another rank; the sender continues meanwhile
  /// The share, from 0 to 1, of the activations saved by F that W still needs after I. 1 is the safe assumption: I frees nothing.
  double kept_for_weight = 1;
  const StageCosts& of(u16 stage) const { return stages[stages.size() == 1 ? 0 : stage]; }
  bool operator==(const ScheduleCosts&) const = default;
};

struct ActionTime {
  double start = 0, end = 0;
};

struct RankTimes {
  double start = 0, end = 0;  // when the rank's first action starts and its last one ends
  double busy = 0;
  /// Counts the most activations that the rank holds at one time. The unit is what one stage saves of one micro-batch; with
  /// several chunks per rank, each chunk counts separately. A unit is held from the start of F to the end of B. If B is split,
  /// the whole unit is held to the end of I, and the share kept_for_weight of it to the end of W.
  double peak_activations = 0;
  double idle_inside() const { return end - start - busy; }
};

struct ScheduleTimes {
  // the times of all actions, indexed as Schedule::rows; an idle slot of the schedule takes no time
  std::vector<std::vector<ActionTime>> actions;
  std::vector<RankTimes> ranks;
  double makespan = 0;
  double idle(i64 rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  /// Returns the idle time of all ranks as a share of their whole time, from 0 to 1.
  double bubble() const;
};

/// Simulates the schedule. For a micro-batch, F needs the previous stage's F, and B or I needs the next stage's B or I. If that stage is on
/// another rank, its result arrives one transfer later. Every action also needs the action before it in its row. An overlapped pair starts
/// when both of its actions can, and takes the time of both, F first. Idle slots in the schedule take no time; idle time is a result of the
/// simulation. The schedule must pass rules 1 to 3 of check_schedule(). Throws Error(data), which names the ranks, at a deadlock. Throws
/// Error(usage) for costs beyond the limits, and for a number of costs that is neither one nor one per stage.
ScheduleTimes simulate_schedule(const Schedule& schedule, const ScheduleCosts& costs = {});

/// Returns the schedule with those idle slots that appear if each action takes one unit of time. An overlapped pair takes its own cell and
/// an empty one.
Schedule with_idle(const Schedule& schedule);

}  // namespace spillway::parallel
