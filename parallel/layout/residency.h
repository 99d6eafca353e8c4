// A table that states what each group stores where on this rank. It is computed once from a layout, a placement and a scheduling. Programs
// are generated from this table and checked against it; memory sizing, the model state and the executor read it too. Plain values.
#pragma once
#include "parallel/layout/placement.h"

namespace spillway::parallel {

/// States where a group's weights, or its gradient accumulators, are stored.
struct Residence {
  Tier tier = Tier::device;
  bool split = false;   // sharded: each rank stores only its own part
  bool moves = false;   // copied to the device before use, and back afterwards
  bool beside = false;  // those copies run on lanes of their own, at the same time as computing
  TileRange held;       // tiles that this rank stores
};

struct GroupResidency {
  /// If weights.split, the weights are gathered from all ranks before each use.
  Residence weights;
  /// If gradients.split, a rank keeps only its shard of the reduced gradient. Gradients of frozen groups never move.
  Residence gradients;
  /// True at ZeRO stages 1 and 2 if each rank stores the whole weights but steps only its own part of them. The parts are all-gathered
  /// after the Steps.
  bool weights_spread = false;
  /// True if the finished gradient stays in its slot on the device until its Steps, although nvme is its tier.
  bool gradient_stays = false;
  /// True if the Steps wait for the next step's forward. Otherwise they run in their own step: inside the backward with overlap backward,
  /// else after it.
  bool deferred = false;
  /// Tiles of a reduced gradient that this rank keeps and steps.
  TileRange stepped;
  /// For each use of the group: true if the accumulator of this use is stored in the gradients' tier.
  std::vector<bool> gradient_rests;
  /// For each use of the group: the dtype in which the gradient waits for its Step.
  std::vector<DType> resting_gradient;
};

/// Indexed by group id.
using Residency = std::vector<GroupResidency>;

Residency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// Each of these functions computes one entry of the table, for a planner that weighs placements before it chooses one.
TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group);
TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group);
bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group);

}  // namespace spillway::parallel
