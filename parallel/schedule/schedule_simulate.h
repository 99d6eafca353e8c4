// Computes how long a pipeline schedule takes, before anything runs. Every rank goes through its row in order; an action starts when its
// rank is free and its inputs have arrived. Pure functions; thread-safe. Linear in the number of actions.
#pragma once
#include <vector>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// A cost must be 0 or lie between these limits. Then sums of any number of costs are finite and their ratios are numbers.
constexpr double kLeastCost = 1e-9, kMostCost = 1e9;

/// Costs of one stage in any unit of time. By default every action takes one slot, as in the tables of torch.distributed.pipelining.
struct StageCosts {
  double forward = 1, backward = 1, backward_input = 1, backward_weight = 1;
  double of(ActionKind kind) const;  // cost of an action; 0 for idle
  bool operator==(const StageCosts&) const = default;
};

struct ScheduleCosts {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  // one entry for all stages, or one per stage
  double transfer = 0;  // time to send an activation or its gradient to another rank, while the sender goes on
  /// Share, from 0 to 1, of the activations saved by F that W still needs after I. 1 is the safe assumption: I frees nothing.
  double kept_for_weight = 1;
  const StageCosts& of(u16 stage) const { return stages[stages.size() == 1 ? 0 : stage]; }
  bool operator==(const ScheduleCosts&) const = default;
};

struct ActionTime {
  double start = 0, end = 0;
};

struct RankTimes {
  double start = 0, end = 0;  // start of the rank's first action, end of its last
  double busy = 0;
  /// Most activations held at once. The unit is what a stage saves of one micro-batch, held from the start of F to the end of B. If B is
  /// split, it is held fully to the end of I, and its share kept_for_weight to the end of W. With several chunks per rank each chunk's
  /// activations count as one unit.
  double peak_activations = 0;
  double idle_inside() const { return end - start - busy; }
};

struct ScheduleTimes {
  std::vector<std::vector<ActionTime>> actions;  // same indices as Schedule::rows; an idle slot takes no time
  std::vector<RankTimes> ranks;
  double makespan = 0;
  double idle(i64 rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  /// Returns the share of all ranks' time that is idle, from 0 to 1.
  double bubble() const;
};

/// Simulates the schedule. F needs the previous stage's F; B and I need the next stage's B or I, each of the same micro-batch and one
/// transfer later if that stage is on another rank. Every action also needs the one before it in its row. An overlapped pair starts when
/// both can and takes the time of both, F first. Idle slots in the schedule take no time; idle time is a result. Expects a schedule that
/// passes rules 1 to 3 of check_schedule(). Throws Error(data) that names ranks in a deadlock, and Error(usage) for costs beyond the limits
/// or a number of costs that is neither one nor one per stage.
ScheduleTimes simulate_schedule(const Schedule& schedule, const ScheduleCosts& costs = {});

/// Returns the schedule with the idle slots that appear if each action takes one slot. An overlapped pair takes its cell and an empty one.
Schedule with_idle(const Schedule& schedule);

}  // namespace spillway::parallel
