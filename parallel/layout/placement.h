// Which tier each group's weights, gradients (by use) and optimizer state rest in, what becomes of each block's activations between forward
// and backward, and what else shapes a Program. Values.
#pragma once
#include <vector>

#include "offload/tier.h"
#include "optim/state_format.h"
#include "parallel/layout/sharding.h"
#include "parallel/schedule/pipeline.h"

namespace spillway::parallel {

using offload::Tier;

/// What a block keeps between its forward and its backward (all its saved tensors, or its input alone, to run it again), and where.
struct ActivationPolicy {
  bool recompute = false;
  Tier tier = Tier::device;
  bool operator==(const ActivationPolicy&) const = default;
};

/// One tier a group, indexed by group id; one policy a block.
struct Placement {
  std::vector<Tier> parameters, gradients, optimizer;
  std::vector<ActivationPolicy> activations;

  static Placement uniform(const Layout& layout, Tier parameters, Tier gradients, Tier optimizer, ActivationPolicy activations = {}) {
    Placement p;
    p.parameters.assign(layout.groups.size(), parameters);
    p.gradients.assign(layout.groups.size(), gradients);
    p.optimizer.assign(layout.groups.size(), optimizer);
    p.activations.assign(layout.blocks.size(), activations);
    return p;
  }
};

/// Where the optimizer's Step of a training step stands: after its backward; inside it, speculatively into the next generation; or in the
/// next step's forward, each block's just before the block.
enum class OptimizerOverlap : u8 { none, backward, forward };

/// Micro-batch after micro-batch through all blocks, or (vertical) all micro-batches of a block before the next block, so that weights and
/// accumulators that spill travel once a step.
enum class Order : u8 { micro_batch, vertical };

struct Scheduling {
  i64 micro_batches = 1;         // K
  int prefetch = 1;              // blocks fetched ahead
  optim::StateFormat format;     // of weights, gradients and state
  bool round_gradients = false;  // to bf16, once: summed over micro-batches and uses, before the norm
  bool reduce_each = false;      // gradients are summed over the ranks micro-batch by micro-batch (ZeRO 2 and 3), else once a step
  OptimizerOverlap overlap = OptimizerOverlap::none;
  Order order = Order::micro_batch;
  Sharding sharding;
  Pipeline pipeline;
  bool copy_engines = false;       // the device copies to and from host memory beside its computing: a GPU
  u16 staying_blocks = 1;          // whose gradients stay for their Steps; make_plan raises it where that takes no more memory
  std::vector<i64> spilled_bytes;  // by block, whole pages: what one micro-batch keeps outside the device (make_plan fills it in)
  std::vector<i64> output_bytes;   // by block: of what it hands on of one micro-batch to another pipeline rank (likewise)

  /// Micro-batches between whose forward and backward of a block there is another one's, on one pipeline rank.
  i64 live_micro_batches() const { return order == Order::vertical ? micro_batches : 1; }
  /// The sums over the ranks are added up over the micro-batches, not the other way round.
  bool sums_each() const { return reduce_each && sharding.ranks > 1 && micro_batches > 1; }
  /// Gradients come by their tier once a step, not once a micro-batch.
  bool gradients_travel_once() const { return live_micro_batches() == micro_batches && !sums_each(); }
};

/// What moves between the device and this tier does so beside computing, on lanes of its own. A CPU has no engine for copies beside its
/// cores: between the device and host memory its computing threads copy, all of them, just when it is needed.
inline bool moves_beside(const Scheduling& scheduling, Tier tier) {
  return tier == Tier::nvme || (scheduling.copy_engines && tier == Tier::host);
}

inline Stages make_stages(const Layout& layout, const Scheduling& s) {
  return make_stages(s.pipeline, s.order == Order::vertical, s.micro_batches, static_cast<u16>(layout.blocks.size()));
}

/// The gradients on nvme that are finished last, by the Backwards of the first trained blocks, are not written there: their slots are
/// needed no more, and their Steps are the next to read them, in this step's tail or at the beginning of the next one's head.
inline bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group) {
  const int block = group.owner_block - layout.first_trained_block;
  return !group.frozen && placement.gradients[group.id] == Tier::nvme && block < scheduling.staying_blocks;
}

/// A rank holds its part of the weights alone: all of them cross the ranks before each use. Off the device from stage 1 on, where whole
/// copies on every rank would only cost bytes.
inline bool weights_split(const Placement& placement, const Scheduling& scheduling, u16 group) {
  const Sharding& s = scheduling.sharding;
  return s.ranks > 1 && (s.stage == 3 || (s.stage > 0 && placement.parameters[group] != Tier::device));
}

/// Stages 1 and 2: each rank has the whole weights and steps its part of them; the parts cross the ranks after the Steps.
inline bool weights_spread(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return scheduling.sharding.splits_state() && !group.frozen && !weights_split(placement, scheduling, group.id);
}

/// A rank keeps its part of the reduced gradient alone. What later micro-batches are added to before a sum over the ranks is whole at every
/// stage.
inline bool gradients_split(const Placement& placement, const Scheduling& scheduling, u16 group) {
  const Sharding& s = scheduling.sharding;
  if (scheduling.sums_each()) return true;
  return s.splits_state() && scheduling.gradients_travel_once() && (s.stage > 1 || placement.gradients[group] != Tier::device);
}

/// They come to the device and leave it.
inline bool weights_move(const Placement& placement, const Scheduling& scheduling, u16 group) {
  return placement.parameters[group] != Tier::device || weights_split(placement, scheduling, group);
}
inline bool gradients_move(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return !group.frozen && (placement.gradients[group.id] != Tier::device || gradients_split(placement, scheduling, group.id));
}

/// The tiles this rank has at rest.
inline TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return weights_split(placement, scheduling, group.id) ? scheduling.sharding.own(group) : whole(group);
}
inline TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return gradients_split(placement, scheduling, group.id) ? scheduling.sharding.own(group) : whole(group);
}

/// The use's accumulator rests in its gradients' tier. Off the device, where they travel once, the others wait in their slots to be added
/// to the first, and where that one stays for its Step none rests. Uses on other pipeline ranks are received by the owner: into a slot, or
/// on the device to where they would rest.
inline bool gradient_rests(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group, u8 use) {
  const bool moves = gradients_move(placement, scheduling, group);
  if (!moves) return layout.here(group.uses[use]) || layout.owns(group);
  if (!scheduling.gradients_travel_once()) return layout.here(group.uses[use]);
  return use == 0 && layout.owns(group) && !stays_for_step(layout, placement, scheduling, group);
}

/// Type in which a gradient awaits its Step: two bytes where it is rounded and then nothing is added to it. What comes back to be added to,
/// or rests whole on the device, keeps the type it is summed in (and holds rounded values there).
inline DType resting_gradient(const Placement& placement, const Scheduling& scheduling, GroupUse use) {
  const bool rounded_apart = use.use == 0 &&
                             (placement.gradients[use.group] != Tier::device || gradients_split(placement, scheduling, use.group)) &&
                             scheduling.gradients_travel_once();
  return scheduling.round_gradients && rounded_apart ? DType::bf16 : scheduling.format.gradient;
}

}  // namespace spillway::parallel
