// Where the operands of a rank's instructions lie: in the slabs of its Programs, or where they rest. Thread-safe but for activations().
#pragma once
#include "device/arena.h"
#include "parallel/state/model_state.h"

namespace spillway::parallel {

class RankMemory {
 public:
  /// Takes the slabs that the plan says. The plan and the state outlive it.
  RankMemory(const Plan& plan, ModelState& state, const Resources& resources);

  std::byte* at(const Slot& slot) const { return (slot.slab == Slab::spill ? spill_ : moving_).data() + slot.offset; }
  std::span<std::byte> bytes(const Slot& slot) const { return {at(slot), static_cast<size_t>(slot.bytes)}; }
  /// These tiles of the accumulator of (group, use). A slot holds them alone; without one they lie where it is resident.
  std::byte* gradient(const Slot& slot, GroupUse use, TileRange tiles) const;
  /// All of it.
  std::byte* gradient(const Slot& slot, GroupUse use) const;
  /// For Numbers alone.
  std::span<double> norm() const { return {reinterpret_cast<double*>(norm_.data()), static_cast<size_t>(norm_.bytes()) / sizeof(double)}; }
  /// What blocks keep and work with.
  Arena& activations() { return activations_; }
  /// Of keys and values.
  Arena& cache() { return cache_; }

 private:
  const Plan& plan_;
  ModelState& state_;
  const Allocation moving_, spill_, activation_slab_, cache_slab_, norm_;
  Arena activations_, cache_;
};

}  // namespace spillway::parallel
