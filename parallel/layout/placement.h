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
  bool keeps_logits = false;  // the last block's, all of a micro-batch from its forward to its backward, where they do not spill
  Tier cache = Tier::device;  // of keys and values, when text is generated with one: the device or the host

  /// All that a Step of the group reads and writes lies on the device. `given`: its gradient comes in a slot, which lies there too.
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

/// Where the optimizer's Step of a training step stands: after its backward; inside it, speculatively into the next generation; or in the
/// next step's forward, each block's just before the block. A speculation is in vain where the norm turns out to be clipped: then all Steps
/// of that update stand in the next step's forward.
enum class OptimizerOverlap : u8 { none, backward, forward };

/// Scheduling::deferred_sixteenths that leaves every Step to the next forward.
constexpr int kAllSixteenths = 16;

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
  /// Overlap backward: so many sixteenths of what is stepped are left to the next forward (GroupResidency::deferred), for a drive that has
  /// more to do than fits beside the backward. 0: none.
  int deferred_sixteenths = 0;
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
  /// In which a group rests: running statistics, which every rule moves alike, keep a master at most; what a rule of matrices leaves is
  /// AdamW's.
  optim::StateFormat format_of(const Group& group) const {
    if (group.statistics) return format.without_arrays();
    if (group.factors > 0) return format.factored(group.factors);
    return group.by_parameter ? format : format.beside_matrices();
  }
  /// To bf16. What flows to running statistics is no gradient, and stays as it is.
  bool rounds(const Group& group) const { return round_gradients && !group.statistics; }
  /// Some Steps wait for the next forward even when clipping does not bite.
  bool defers() const { return overlap == OptimizerOverlap::forward || (overlap == OptimizerOverlap::backward && deferred_sixteenths > 0); }
  /// Gradients come by their tier once a step, not once a micro-batch.
  bool gradients_travel_once() const { return live_micro_batches() == micro_batches && !sums_each(); }
};

inline Stages make_stages(const Layout& layout, const Scheduling& s) {
  return make_stages(s.pipeline, s.order == Order::vertical, s.micro_batches, static_cast<u16>(layout.blocks.size()));
}

}  // namespace spillway::parallel
