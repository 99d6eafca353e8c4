// Finds the memory of an instruction's operands. The memory lies in the planned slabs (large pieces of memory), or where the data is
// stored. Thread-safe except for activations().
#pragma once
#include "device/arena.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class RankMemory {
 public:
  /// Allocates the slabs that the plan lists. The plan and the state must outlive this object.
  RankMemory(const Plan& plan, ModelState& state, const Resources& resources);

  std::byte* at(const Slot& slot) const { return (slot.slab == Slab::spill ? spill_ : moving_).data() + slot.offset; }
  std::span<std::byte> bytes(const Slot& slot) const { return {at(slot), static_cast<size_t>(slot.bytes)}; }
  /// Returns the address of these tiles of the gradient accumulator that a block has for a parameter group. If the instruction names a slot
  /// (planned device memory), the slot holds exactly these tiles. Without a slot, the tiles lie in the accumulator that is stored on the
  /// device.
  std::byte* gradient(const Slot& slot, GroupUse use, TileRange tiles) const;
  /// Returns the address of the whole gradient accumulator that a block has for a parameter group.
  std::byte* gradient(const Slot& slot, GroupUse use) const;
  /// Returns the buffer for the sums of squares from which the gradient norm is computed. Used by Numbers only.
  std::span<double> norm() const { return {reinterpret_cast<double*>(norm_.data()), static_cast<size_t>(norm_.bytes()) / sizeof(double)}; }
  /// Returns the memory for the activations that blocks keep for their backward, and for their workspaces.
  Arena& activations() { return activations_; }
  /// Returns the memory of the key/value cache.
  Arena& cache() { return cache_; }

 private:
  const Plan& plan_;
  ModelState& state_;
  const Allocation moving_, spill_, activation_slab_, cache_slab_, norm_;
  Arena activations_, cache_;
};

}  // namespace spillway::parallel
