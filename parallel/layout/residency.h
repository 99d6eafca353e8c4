// The table of what each group stores where on this rank, computed once from a layout, a placement and a scheduling. Programs are generated
// from it and checked against it; memory sizing, the model state and the executor read the same table. Plain values.
#pragma once
#include "parallel/layout/placement.h"

namespace spillway::parallel {

/// States where a group's weights, or its gradient accumulators, are stored.
struct Residence {
  Tier tier = Tier::device;
  bool split = false;   // sharded: each rank stores its part only
  bool moves = false;   // copied to the device for use, and from it afterwards
  bool beside = false;  // those copies run beside computing, on lanes of their own
  TileRange held;       // tiles that this rank stores
};

struct GroupResidency {
  /// If split, the weights are gathered from all ranks before each use.
  Residence weights;
  /// If split, a rank keeps only its shard of the reduced gradient. Gradients of frozen groups never move.
  Residence gradients;
  /// True at ZeRO stages 1 and 2: each rank stores the whole weights and steps its part of them; the parts are all-gathered after the
  /// Steps.
  bool weights_spread = false;
  /// The finished gradient is not written to nvme but stays in its slot for its Steps.
  bool gradient_stays = false;
  /// The Steps wait for the next step's forward. Otherwise, with overlap backward, they run inside the backward.
  bool deferred = false;
  /// Tiles of a reduced gradient that this rank keeps and steps.
  TileRange stepped;
  /// By use: the accumulator is stored in the gradients' tier.
  std::vector<bool> gradient_rests;
  /// By use: the dtype in which a gradient waits for its Step.
  std::vector<DType> resting_gradient;
};

/// Indexed by group id.
using Residency = std::vector<GroupResidency>;

Residency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// Each of these returns one entry of the table, for a planner that weighs placements before it chooses one.
TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group);
TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group);
bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group);

}  // namespace spillway::parallel
