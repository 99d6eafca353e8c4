// Plans where in a slab (a large piece of memory) the slots lie: the pieces that hold data on its way between tiers or ranks. A slot that
// reuses the memory of an earlier slot must wait for the instruction that freed that memory; take() names these instructions.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "device/arena.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

class SlabPlan {
 public:
  explicit SlabPlan(Slab slab) : slab_(slab) {}

  /// Reserves a slot of `bytes` bytes. Slots begin at page boundaries, as direct I/O requires. Adds to `after` the instructions that
  /// freed memory which the new slot covers.
  Slot take(i64 bytes, std::vector<u32>& after) {
    Allocation piece = arena_.allocate(round_up(bytes, kPage), "slot");
    const Slot slot{piece.offset(), bytes, slab_};
    held_.emplace(slot.offset, std::move(piece));
    for (const auto& [old, by] : given_up_) {
      if (old.overlaps(slot)) after.push_back(by);
    }
    std::erase_if(given_up_, [&](const auto& g) {
      return slot.offset <= g.first.offset && g.first.offset + g.first.bytes <= slot.offset + slot.bytes;
    });
    return slot;
  }
  /// Frees the slot. Its memory may be reused once `instruction` is done.
  void give_up(const Slot& slot, u32 instruction) {
    held_.erase(slot.offset);
    given_up_.emplace_back(slot, instruction);
  }
  i64 peak_bytes() const { return arena_.peak_bytes(); }

 private:
  static constexpr i64 kPage = 4096;
  const Slab slab_;
  Arena arena_;
  std::map<i64, Allocation> held_;
  std::vector<std::pair<Slot, u32>> given_up_;
};

}  // namespace spillway::parallel
