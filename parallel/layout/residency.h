// What rests where on this rank, group by group, resolved once from a layout, a placement and a scheduling. It is what a Program is made
// by and checked against; who sizes memory, keeps the state and runs reads the same table. Values.
#pragma once
#include "parallel/layout/placement.h"

namespace spillway::parallel {

/// Of a group's weights, or of its gradients' accumulators.
struct Residence {
  Tier tier = Tier::device;
  bool split = false;   // of all ranks together: each has its part alone
  bool moves = false;   // they come to the device and leave it
  bool beside = false;  // and between it and their tier they do so beside computing, on lanes of their own
  TileRange held;       // what this rank has at rest
};

struct GroupResidency {
  /// Split ones cross the ranks before each use.
  Residence weights;
  /// Split: a rank keeps its part of the reduced gradient alone. Frozen groups' never move.
  Residence gradients;
  /// ZeRO stages 1 and 2: each rank has the whole weights and steps its part of them; the parts cross the ranks after the Steps.
  bool weights_spread = false;
  /// Its finished gradient is not written to nvme but stays in its slot for its Steps.
  bool gradient_stays = false;
  /// Its Steps wait for the next step's forward; else, under an overlap, they stand inside the backward.
  bool deferred = false;
  /// The tiles of a reduced gradient that this rank goes on with.
  TileRange stepped;
  /// By use: its accumulator rests in the gradients' tier.
  std::vector<bool> gradient_rests;
  /// By use: the type in which a gradient awaits its Step.
  std::vector<DType> resting_gradient;
};

/// By group id.
using Residency = std::vector<GroupResidency>;

Residency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling);

/// One entry of the table each, for who weighs placements before any is chosen.
TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group);
TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group);
bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group);

}  // namespace spillway::parallel
