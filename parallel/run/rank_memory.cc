#include "parallel/run/rank_memory.h"

namespace spillway::parallel {

RankMemory::RankMemory(const Plan& plan, ModelState& state, const Resources& resources)
    : plan_(plan),
      state_(state),
      moving_(resources.device->allocate(plan.moving_slab_bytes, "data in motion")),
      spill_(resources.host->allocate(plan.spill_slab_bytes, "activations spilled")),
      activation_slab_(resources.device->allocate(plan.activation_slab_bytes, "activations")),
      cache_slab_(
          (plan.placement.cache == Tier::device ? resources.device : resources.host)->allocate(plan.cache_bytes, "key/value cache")),
      norm_(resources.host->allocate(plan.norm_bytes, "norm")),
      activations_(activation_slab_.data(), plan.activation_slab_bytes),
      cache_(cache_slab_.data(), plan.cache_bytes) {}

std::byte* RankMemory::gradient(const Slot& slot, GroupUse use, TileRange tiles) const {
  if (slot.bytes > 0) return at(slot);
  return state_.gradients(use.group, use.use).view(tiles, state_.generation()).data();
}

std::byte* RankMemory::gradient(const Slot& slot, GroupUse use) const { return gradient(slot, use, whole(plan_.layout.groups[use.group])); }

}  // namespace spillway::parallel
