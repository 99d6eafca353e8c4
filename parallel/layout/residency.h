// Residency is a table that states where each group's data is stored on this rank. It is computed once from a layout (which parameters form
// which group), a placement (the tier of each kind of data) and a scheduling. The instruction lists of a step (Programs) are generated from
// this table and checked against it; memory sizing, the model state and the executor read it too. Plain values.
#pragma once
#include "parallel/layout/placement.h"

namespace spillway::parallel {

/// States where a group's weights, or its gradient accumulators, are stored.
struct Residence {
  Tier tier = Tier::device;
  bool split = false;   // whether the data is sharded, so that each rank stores only its own part
  bool moves = false;   // whether the data is copied to the device before use, and back afterwards
  bool beside = false;  // whether copies of the data to and from the device run on separate threads, at the same time as computing
  TileRange held;       // tiles that this rank stores
};

struct GroupResidency {
  /// If weights.split, the weights are gathered from all ranks before each use.
  Residence weights;
  /// If gradients.split, a rank keeps only its shard of the reduced gradient. Gradients of frozen groups never move.
  Residence gradients;
  /// True at ZeRO stages 1 and 2 if each rank stores the whole weights but updates only its own part of them. The updated parts are then
  /// all-gathered.
  bool weights_spread = false;
  /// True if the finished gradient stays in device memory until the optimizer's update, although its tier is nvme.
  bool gradient_stays = false;
  /// True if the optimizer's updates of the group are deferred to the next step's forward. If false, they run in the step that computes the
  /// gradients: inside the backward with overlap backward, otherwise after the backward.
  bool deferred = false;
  /// The tiles of a reduced gradient that this rank keeps, and whose parameters it updates.
  TileRange stepped;
  /// For each block that uses the group: whether its gradient accumulator is stored in the gradients' tier.
  std::vector<bool> gradient_rests;
  /// For each block that uses the group: the dtype in which its gradient is stored until the optimizer's update.
  std::vector<DType> resting_gradient;
};

/// The table is indexed by group id.
using Residency = std::vector<GroupResidency>;

Residency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// Each function below computes one entry of the Residency table. A planner calls them to compare placements (choices of a tier for each
/// kind of data).
TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group);
TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group);
bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group);

}  // namespace spillway::parallel
