// What every check of a list stands on, from its first instruction to its last: which instruction is done before which, as far as lanes and
// `after` say, what each slot holds, and who may still be using it. Refuses memory used without order. One thread.
#pragma once
#include <algorithm>
#include <string>

#include "parallel/program/program.h"

namespace spillway::parallel {

class ListWalk {
 public:
  enum class Access { read, write, give_up };

  // What a slot holds, as far as the list up to some instruction says. `of` is a group and a use of it; for activations, outputs and their
  // gradients a block and a micro-batch.
  struct Content {
    What what;
    std::pair<u16, u16> of;
    u32 by;
    bool operator==(const Content& o) const { return what == o.what && of == o.of; }
  };
  static constexpr u32 kBefore = 0xffffffff;  // filled by an earlier list

  ListWalk(const List& list, const std::array<i64, kSlabs>& slab_bytes) : list_(list), slab_bytes_(slab_bytes) { last_in_lane_.fill(-1); }

  [[noreturn]] void refuse(u32 i, const std::string& why) const;
  /// To be called once for each instruction, in order.
  void order(u32 i);
  bool before(u32 a, u32 b) const { return clock_[b][static_cast<size_t>(list_[a].lane)] > place_[a]; }
  void touch(u32 i, const Slot& slot, Access access);
  void fill(u32 i, const Slot& slot, Content content);
  /// The slot holds it, put there before the instruction starts.
  void expect(u32 i, const Slot& slot, const Content& wanted);
  /// Reads what the slot holds and writes the same again.
  void rewrite(u32 i, const Slot& slot);

  const List& list() const { return list_; }
  const std::vector<std::pair<Slot, Content>>& holds() const { return holds_; }
  bool holds(const Content& content) const {
    return std::ranges::any_of(holds_, [&](const auto& held) { return held.second == content; });
  }
  /// From before the list.
  void found(const Slot& slot, Content content) { holds_.emplace_back(slot, content); }
  /// The lane's last instruction so far; -1: none.
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
  std::vector<std::array<u32, kLanes>> clock_;  // of each instruction: how many of each lane are done before it starts
  std::vector<u32> place_;                      // of each, in its lane
  std::array<u32, kLanes> count_{};
  std::vector<Use> uses_;
};

}  // namespace spillway::parallel
