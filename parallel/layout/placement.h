// A Placement states which tier (GPU, host memory, nvme) stores each group's weights, gradients and optimizer state, and what happens to
// each block's activations between forward and backward. This file also defines the other settings from which a rank's list of
// instructions (Program) is generated. Plain values.
#pragma once
#include <vector>

#include "offload/tier.h"
#include "optim/state_format.h"
#include "parallel/layout/sharding.h"
#include "parallel/schedule/pipeline.h"

namespace spillway::parallel {

using offload::Tier;

/// The most bytes of a tile in which activations are stored outside the device. The CPU's threads verify tiles of nvme side by side.
constexpr i64 kActivationTileBytes = i64{1} << 20;

/// States what a block keeps between its forward and its backward, and in which tier. It keeps either all its saved tensors, or, with
/// `recompute`, only its input, from which the forward is run again (gradient checkpointing).
struct ActivationPolicy {
  bool recompute = false;
  Tier tier = Tier::device;
  bool operator==(const ActivationPolicy&) const = default;
};

/// Says where everything is stored. The vectors of tiers are indexed by group id; `activations` has one policy for each block.
struct Placement {
  std::vector<Tier> parameters, gradients, optimizer;
  std::vector<ActivationPolicy> activations;
  /// If true, the last block keeps all logits of a micro-batch from forward to backward, unless its activations are offloaded.
  bool keeps_logits = false;
  Tier cache = Tier::device;  // tier of the key/value cache when text is generated with one: device or host

  /// Returns true if everything that an optimizer update of the group reads and writes lies on the device.
  /// `given` says that the update receives the gradient in planned device memory (a slot), not in the gradient's tier.
  bool steps_on_device(u16 group, bool given) const {
    return parameters[group] == Tier::device && optimizer[group] == Tier::device && (given || gradients[group] == Tier::device);
  }

  static Placement uniform(const Layout& layout, Tier parameters, Tier gradients, Tier optimizer, ActivationPolicy activations = {}) {
    Placement p;
    p.parameters.assign(layout.groups.size(), parameters);
    p.gradients.assign(layout.groups.size(), gradients);
    p.optimizer.assign(layout.groups.size(), optimizer);
    p.activations.assign(layout.blocks.size(), activations);
    return p;
  }
};

/// When the optimizer's updates (Steps) run. none: after the backward. backward: inside the backward, before the gradient norm is known, so
/// they write speculatively into the next generation (copy of weights and state). forward: in the next step's forward, each block's Steps
/// just before the block. If `backward` finds afterwards that the norm must be clipped, it discards the speculative results, and all Steps
/// of that update run in the next step's forward.
enum class OptimizerOverlap : u8 { none, backward, forward };

/// The value of Scheduling::deferred_sixteenths that defers every optimizer update (Step) to the next forward.
constexpr int kAllSixteenths = 16;

struct Scheduling {
  i64 micro_batches = 1;      // number of micro-batches in a step (K)
  int prefetch = 1;           // number of runs ahead for which data is prefetched; a run is consecutive micro-batches on one block
  optim::StateFormat format;  // dtypes of weights, gradients and state
  /// If true, gradients are rounded to bf16 once: after they are summed over micro-batches and over the blocks that share the weight, and
  /// before the norm.
  bool round_gradients = false;
  bool reduce_each = false;  // true: gradients are summed over the ranks after every micro-batch (ZeRO 2 and 3); false: once a step
  OptimizerOverlap overlap = OptimizerOverlap::none;
  /// The number of sixteenths of the elements whose optimizer updates are deferred to the next forward, with overlap backward. Deferring
  /// helps if the drive has more to do than fits into the time of the backward.
  int deferred_sixteenths = 0;
  Order order = Order::micro_batch;
  Sharding sharding;
  Pipeline pipeline;
  bool copy_engines = false;  // whether the device copies to and from host memory while it computes, as a GPU with copy engines does
  /// If true, a GPU also makes the optimizer updates of groups that do not rest in its memory: their tiles travel to the GPU and back
  /// (Plan::streams_step). If false, the CPU's threads make these updates. The results are bitwise the same.
  bool streams_steps = false;
  /// The number of blocks whose gradients stay on the device until their optimizer updates. make_plan raises the number if a higher one
  /// takes no more memory.
  u16 staying_blocks = 1;
  // for each block: bytes, in whole tiles (spilled_tiles()), that one micro-batch stores outside the device (filled in by make_plan)
  std::vector<i64> spilled_bytes;
  /// Holds for each block the bytes of its output for one micro-batch, if another pipeline rank reads the output (filled in by make_plan).
  std::vector<i64> output_bytes;

  /// Returns the number of equal tiles in which the activations of one micro-batch are stored outside the device.
  i64 spilled_tiles(u16 block) const { return ceil_div(spilled_bytes.at(block), kActivationTileBytes); }
  /// Returns true if instructions of their own (Evict, Fetch) copy activations to this tier and back, so that other blocks compute
  /// meanwhile. Otherwise the Forward copies them, and the Backward copies them back. On a CPU, whose cores would have to do both at once,
  /// this is so for host memory.
  bool activations_travel(Tier tier) const { return tier == Tier::nvme || (tier == Tier::host && copy_engines); }
  /// Returns, for a single pipeline rank, the largest number of micro-batches whose forward through a block is done and whose backward is
  /// not.
  i64 live_micro_batches() const { return order == Order::vertical ? micro_batches : 1; }
  /// Returns true if each micro-batch's gradients are summed over the ranks and these sums are added up over the micro-batches. Otherwise
  /// each rank adds up its micro-batches first.
  bool sums_each() const { return reduce_each && sharding.ranks > 1 && micro_batches > 1; }
  /// Returns the state format of a group. Running statistics keep at most a master copy under every rule. Parameters that Muon does not
  /// handle use AdamW's format.
  optim::StateFormat format_of(const Group& group) const {
    if (group.statistics) return format.without_arrays();
    if (group.factors > 0) return format.factored(group.factors);
    return group.by_parameter ? format : format.beside_matrices();
  }
  /// Returns true if the group's gradients are rounded to bf16. Updates of running statistics are not gradients and are never rounded.
  bool rounds(const Group& group) const { return round_gradients && !group.statistics; }
  /// Returns true if some optimizer updates are deferred to the next forward even when the norm is not clipped.
  bool defers() const { return overlap == OptimizerOverlap::forward || (overlap == OptimizerOverlap::backward && deferred_sixteenths > 0); }
  /// Returns true if gradients are copied to or from their tier once a step, not once a micro-batch.
  bool gradients_travel_once() const { return live_micro_batches() == micro_batches && !sums_each(); }
};

inline Stages make_stages(const Layout& layout, const Scheduling& s) {
  return make_stages(s.pipeline, s.order == Order::vertical, s.micro_batches, static_cast<u16>(layout.blocks.size()));
}

}  // namespace spillway::parallel
