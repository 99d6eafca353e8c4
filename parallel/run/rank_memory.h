// Finds the memory of an instruction's operands: in the slabs that its Program plans, or where the data is stored at rest. Thread-safe
// except activations().
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
  /// Returns the address of these tiles of the gradient accumulator of (group, use). A slot holds exactly these tiles; without a slot they
  /// lie in the accumulator that is resident on the device.
  std::byte* gradient(const Slot& slot, GroupUse use, TileRange tiles) const;
  /// Returns the address of the whole accumulator.
  std::byte* gradient(const Slot& slot, GroupUse use) const;
  /// The buffer of the gradient norm's partial sums, used by Numbers only.
  std::span<double> norm() const { return {reinterpret_cast<double*>(norm_.data()), static_cast<size_t>(norm_.bytes()) / sizeof(double)}; }
  /// Memory for what blocks save for backward and for their workspaces.
  Arena& activations() { return activations_; }
  /// Memory of the key/value cache.
  Arena& cache() { return cache_; }

 private:
  const Plan& plan_;
  ModelState& state_;
  const Allocation moving_, spill_, activation_slab_, cache_slab_, norm_;
  Arena activations_, cache_;
};

}  // namespace spillway::parallel
