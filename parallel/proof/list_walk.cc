#include "parallel/proof/list_walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace spillway::parallel {

void ListWalk::refuse(u32 i, const std::string& why) const {
  throw Error(ErrorCode::bug, fmt::format("[check] instruction {} ({} {} block {} group {}): {}", i, to_string(list_[i].lane),
                                          to_string(list_[i].op), list_[i].block, list_[i].group, why));
}

void ListWalk::order(u32 i) {
  const Instruction& now = list_[i];
  std::array<u32, kLanes> clock{};
  const auto lane = static_cast<size_t>(now.lane);
  const auto join = [&](u32 before) {
    for (size_t l = 0; l < kLanes; ++l) clock[l] = std::max(clock[l], clock_[before][l]);
    const auto its = static_cast<size_t>(list_[before].lane);
    clock[its] = std::max(clock[its], place_[before] + 1);
  };
  if (last_in_lane_[lane] >= 0) join(static_cast<u32>(last_in_lane_[lane]));
  for (u32 before : now.after) {
    if (before >= i) refuse(i, fmt::format("waits for instruction {}, which is not an earlier one of the list", before));
    join(before);
  }
  clock_.push_back(clock);
  place_.push_back(count_[lane]++);
  last_in_lane_[lane] = i;
}

void ListWalk::touch(u32 i, const Slot& slot, Access access) {
  if (slot.bytes == 0) return;
  const i64 slab_bytes = slab_bytes_[static_cast<size_t>(slot.slab)];
  if (slot.offset < 0 || slot.offset + slot.bytes > slab_bytes)
    refuse(i, fmt::format("its slot [{}, +{}) is not inside the slab of {} bytes", slot.offset, slot.bytes, slab_bytes));
  for (const Use& earlier : uses_) {
    if (earlier.instruction == i || (earlier.access == Access::read && access == Access::read)) continue;
    if (earlier.slot.overlaps(slot) && !before(earlier.instruction, i)) {
      refuse(i,
             fmt::format("uses memory that instruction {} may still use, because the order of the two is not fixed", earlier.instruction));
    }
  }
  // Forgets the earlier accesses that this access covers. An instruction that is ordered after i is also ordered after them, so they need
  // no further checks.
  if (access != Access::read)
    std::erase_if(uses_, [&](const Use& u) {
      return slot.slab == u.slot.slab && slot.offset <= u.slot.offset && u.slot.offset + u.slot.bytes <= slot.offset + slot.bytes;
    });
  uses_.push_back({i, slot, access});
  if (access != Access::read) std::erase_if(holds_, [&](const auto& h) { return h.first.overlaps(slot); });
}

void ListWalk::fill(u32 i, const Slot& slot, Content content) {
  touch(i, slot, Access::write);
  holds_.emplace_back(slot, content);
}

void ListWalk::expect(u32 i, const Slot& slot, const Content& wanted) {
  const auto h = std::find_if(holds_.begin(), holds_.end(), [&](const auto& held) { return held.first == slot; });
  if (slot.bytes == 0 || h == holds_.end() || !(h->second == wanted)) {
    refuse(i,
           fmt::format("needs the {} of {} {} (group and use, or block and micro-batch) in slot [{}, +{}), but the slot does not hold them",
                       to_string(wanted.what), wanted.of.first, wanted.of.second, slot.offset, slot.bytes));
  }
  if (h->second.by != kBefore && !before(h->second.by, i))
    refuse(i, fmt::format("does not wait for instruction {}, which fills its slot", h->second.by));
  touch(i, slot, Access::read);
}

void ListWalk::rewrite(u32 i, const Slot& slot) {
  if (slot.bytes == 0) return;
  const auto h = std::find_if(holds_.begin(), holds_.end(), [&](const auto& held) { return held.first == slot; });
  Content content = h->second;
  content.by = i;
  fill(i, slot, content);
}

}  // namespace spillway::parallel
