#include "parallel/layout/residency.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

// Returns true if the group's weights are sharded. Weights that are not stored on the device are sharded from stage 1 on, because a whole
// copy on every rank would only take more memory.
bool weights_split(const Placement& placement, const Scheduling& scheduling, u16 group) {
  const Sharding& s = scheduling.sharding;
  return s.ranks > 1 && (s.stage == 3 || (s.stage > 0 && placement.parameters[group] != Tier::device));
}

// Returns true if the group's gradient accumulators are sharded. If gradients of later micro-batches are added to an accumulator before the
// sum over the ranks, the accumulator is whole at every stage.
bool gradients_split(const Placement& placement, const Scheduling& scheduling, u16 group) {
  const Sharding& s = scheduling.sharding;
  if (scheduling.sums_each()) return true;
  return s.splits_state() && scheduling.gradients_travel_once() && (s.stage > 1 || placement.gradients[group] != Tier::device);
}

// Returns true if copies between this tier and the device run at the same time as computing. A CPU has no copy engine: its computing
// threads themselves copy between device and host memory, at the moment when the data is needed.
bool moves_beside(const Scheduling& scheduling, Tier tier) { return tier == Tier::nvme || (scheduling.copy_engines && tier == Tier::host); }

Residence residence(const Scheduling& scheduling, Tier tier, bool split, TileRange held) {
  return {tier, split, tier != Tier::device || split, moves_beside(scheduling, tier), held};
}

// Returns true if the accumulator of this use is stored in the tier of the gradients, and false if it only has temporary memory (a slot)
// on the device. A group of parameters that several blocks share has one gradient accumulator for each block that uses it; the blocks are
// its uses 0, 1, … If gradients live off the device and move once per step, only use 0 is stored, because the others are added to it. Use
// 0 is not stored if it stays on the device until the optimizer's Step. If gradients live on the device, the rank that owns the group
// also stores what other pipeline ranks send for their uses.
bool gradient_rests(const Layout& layout, const Scheduling& scheduling, const Group& group, u8 use, const GroupResidency& r) {
  if (!r.gradients.moves) return layout.here(group.uses[use]) || layout.owns(group);
  if (!scheduling.gradients_travel_once()) return layout.here(group.uses[use]);
  return use == 0 && layout.owns(group) && !r.gradient_stays;
}

// Returns the dtype in which a gradient is stored until the optimizer's update. A rounded gradient takes two bytes per element (bf16) if
// nothing is added to it afterwards. A gradient to which other gradients are added later, or that lies whole on the device, keeps the
// dtype in which it is summed; on the device its values are rounded all the same.
DType resting_gradient(const Scheduling& scheduling, const Group& group, u8 use, const Residence& gradients) {
  const bool rounded_apart = use == 0 && (gradients.tier != Tier::device || gradients.split) && scheduling.gradients_travel_once();
  return scheduling.rounds(group) && rounded_apart ? DType::bf16 : scheduling.format.gradient;
}

GroupResidency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group) {
  GroupResidency r;
  r.weights = residence(scheduling, placement.parameters[group.id], weights_split(placement, scheduling, group.id),
                        held_weights(placement, scheduling, group));
  r.gradients = residence(scheduling, placement.gradients[group.id], gradients_split(placement, scheduling, group.id),
                          held_gradients(placement, scheduling, group));
  r.gradients.moves &= !group.frozen;
  r.weights_spread = scheduling.sharding.splits_state() && !group.frozen && !r.weights.split;
  r.gradient_stays = stays_for_step(layout, placement, scheduling, group);
  r.stepped = scheduling.sharding.stepped(group);
  for (u8 use = 0; use < group.uses.size(); ++use) {
    r.gradient_rests.push_back(gradient_rests(layout, scheduling, group, use, r));
    r.resting_gradient.push_back(resting_gradient(scheduling, group, use, r.gradients));
  }
  return r;
}

// Returns, for each block, the number of elements that this rank updates. Groups count in full even if they are sharded, so that all
// data-parallel ranks get the same numbers.
std::vector<i64> stepped_elems(const Layout& layout) {
  std::vector<i64> elems(layout.blocks.size());
  for (const Group& g : layout.groups) {
    if (!g.frozen && layout.owns(g)) elems[g.owner_block] += g.elems;
  }
  return elems;
}

// Returns for each block whether its optimizer updates are deferred to the next forward. The deferred blocks are spread evenly over the
// model, so that the drive has as much to do in the first half of a forward or backward as in the second. The first trained block is
// always deferred, because nothing computes between its gradient and the next use of its weights. The loop goes from the last block to
// the first, as the backward does, and begins with a block that is not deferred.
std::vector<bool> deferred_blocks(const Layout& layout, int sixteenths) {
  const std::vector<i64> elems = stepped_elems(layout);
  const auto first = std::ranges::find_if(elems, [](i64 e) { return e > 0; }) - elems.begin();
  i64 all = 0, most = 0;
  for (u16 b = 0; b < elems.size(); ++b) all += elems[b], most = std::max(most, b > first ? elems[b] : 0);
  std::vector<bool> deferred(elems.size(), sixteenths > 0);
  if (first + 1 >= std::ssize(elems) || sixteenths == kAllSixteenths) return deferred;
  const double among = static_cast<double>(all - elems[static_cast<size_t>(first)]);
  const double left = static_cast<double>(all) * (kAllSixteenths - sixteenths) / kAllSixteenths;
  const double inside = among > 0 ? std::min(1.0, left / among) : 0;  // share of a block's elements that is updated inside the backward
  double credit = static_cast<double>(most) / 2;
  for (size_t b = elems.size(); b-- > static_cast<size_t>(first) + 1;) {
    credit += static_cast<double>(elems[b]) * inside;
    deferred[b] = credit < static_cast<double>(elems[b]) / 2;
    if (!deferred[b]) credit -= static_cast<double>(elems[b]);
  }
  return deferred;
}

// Sets which groups have deferred optimizer updates. Updates of weights that several pipeline ranks hold are always deferred, because the
// new weights are sent to the other ranks once, after all other updates. Updates of the first trained block are always deferred too.
void defer(const Layout& layout, const Scheduling& scheduling, Residency& all) {
  const int sixteenths = scheduling.overlap == OptimizerOverlap::forward ? kAllSixteenths : scheduling.deferred_sixteenths;
  const std::vector<bool> blocks = deferred_blocks(layout, sixteenths);
  for (const Group& g : layout.groups) {
    const bool shared = g.held() && std::ranges::any_of(g.uses, [&](u16 block) { return layout.rank_of[block] != layout.rank; });
    all[g.id].deferred = !g.frozen && (shared || blocks[g.owner_block]);
  }
}

}  // namespace

Residency resolve(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  Residency all;
  for (const Group& g : layout.groups) all.push_back(resolve(layout, placement, scheduling, g));
  if (scheduling.defers()) defer(layout, scheduling, all);
  return all;
}

TileRange held_weights(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return weights_split(placement, scheduling, group.id) ? scheduling.sharding.own(group) : whole(group);
}

TileRange held_gradients(const Placement& placement, const Scheduling& scheduling, const Group& group) {
  return gradients_split(placement, scheduling, group.id) ? scheduling.sharding.own(group) : whole(group);
}

// Returns true for the gradients that are finished last, by the Backward instructions of the first trained blocks. Nothing else needs
// their device memory any more. The optimizer updates that read these gradients come next, at the end of this step or at the start of the
// next one.
bool stays_for_step(const Layout& layout, const Placement& placement, const Scheduling& scheduling, const Group& group) {
  const int block = group.owner_block - layout.first_trained_block;
  return !group.frozen && placement.gradients[group.id] == Tier::nvme && block < scheduling.staying_blocks;
}

}  // namespace spillway::parallel
