// A ListWalk goes through a list, instruction by instruction; all the checker's rules are based on it. It knows which instruction is done
// before which other one, according to the order that the executor guarantees. It also knows what data each slot (planned memory of the
// instructions) holds and which instructions may still use the slot. It refuses two accesses to the same memory whose order is not fixed.
// Used by one thread.
#pragma once
#include <algorithm>
#include <string>

#include "parallel/program/program.h"

namespace spillway::parallel {

class ListWalk {
 public:
  enum class Access { read, write, give_up };

  // The data in a slot, as far as the instructions walked so far determine it. `of` names the data: the group and the number of the block
  // among those that use the group or, for activations, outputs and output gradients, the block and the micro-batch. `by` is the
  // instruction that wrote the data.
  struct Content {
    What what;
    std::pair<u16, u16> of;
    u32 by;
    bool operator==(const Content& o) const { return what == o.what && of == o.of; }
  };
  static constexpr u32 kBefore = 0xffffffff;  // value of Content::by if an earlier list filled the slot

  ListWalk(const List& list, const std::array<i64, kSlabs>& slab_bytes) : list_(list), slab_bytes_(slab_bytes) { last_in_lane_.fill(-1); }

  [[noreturn]] void refuse(u32 i, const std::string& why) const;
  /// order() must be called for each instruction of the list once, in the order of the list, before other functions are called for it.
  void order(u32 i);
  bool before(u32 a, u32 b) const { return clock_[b][static_cast<size_t>(list_[a].lane)] > place_[a]; }
  void touch(u32 i, const Slot& slot, Access access);
  void fill(u32 i, const Slot& slot, Content content);
  /// Throws an Error that names instruction i unless the slot holds `wanted` and the order of instructions ensures that `wanted` was
  /// written there before i starts.
  void expect(u32 i, const Slot& slot, const Content& wanted);
  /// Records that instruction i reads the data in the slot and writes data of the same kind back.
  void rewrite(u32 i, const Slot& slot);

  const List& list() const { return list_; }
  const std::vector<std::pair<Slot, Content>>& holds() const { return holds_; }
  bool holds(const Content& content) const {
    return std::ranges::any_of(holds_, [&](const auto& held) { return held.second == content; });
  }
  /// Records that the slot held this data before the list began.
  void found(const Slot& slot, Content content) { holds_.emplace_back(slot, content); }
  /// Returns the lane's last instruction so far, or -1 if there is none.
  i64 last_in(Lane lane) const { return last_in_lane_[static_cast<size_t>(lane)]; }

 private:
  struct Use {
    u32 instruction;
    Slot slot;
    Access access;
  };
  const List& list_;
  std::vector<std::pair<Slot, Content>> holds_;
  std::array<i64, kLanes> last_in_lane_{};
  const std::array<i64, kSlabs> slab_bytes_;
  // for each instruction: how many instructions of each lane are certainly done before it starts
  std::vector<std::array<u32, kLanes>> clock_;
  std::vector<u32> place_;  // position of each instruction in its lane
  std::array<u32, kLanes> count_{};
  std::vector<Use> uses_;
};

}  // namespace spillway::parallel
