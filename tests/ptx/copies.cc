// cp.async (PTX ISA 9.0, 9.7.9.25). A copy lands either at once or as late as it may, at the wait; which is drawn.
#include <algorithm>
#include <cstring>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

u64 lane_of(const Warp& w, const Operand& o, u32 lane) { return o.bytes == 8 ? w.in<u64>(o)[lane] : w.in<u32>(o)[lane]; }

// mode: the bytes that are written. from: the destination, the source and, if there is one, how many bytes are read; the rest are zeros.
void copy(Warp& w, const Instruction& i, u32 mask) {
  const auto bytes = static_cast<u32>(i.mode);
  Memory& memory = w.block->memory;
  if (counts()) {
    std::array<u64, kLanes> from, to;
    for (u32 l = 0; l < kLanes; ++l) {
      from[l] = lane_of(w, i.from[1], l) + static_cast<u64>(i.offset2), to[l] = lane_of(w, i.from[0], l) + static_cast<u64>(i.offset);
    }
    w.block->counters.request(Space::global, from, mask, bytes, true);
    w.block->counters.request(Space::shared, to, mask, bytes, false);
  }
  each_lane(mask, [&](u32 l) {
    LateCopy one;
    one.to = lane_of(w, i.from[0], l) + static_cast<u64>(i.offset);
    one.count = bytes, one.group = w.copy_groups[l];
    const u64 from = lane_of(w, i.from[1], l) + static_cast<u64>(i.offset2);
    const u32 read = i.from_count > 2 ? w.in<u32>(i.from[2])[l] : bytes;
    if (read > bytes) throw Fault("a cp.async that reads " + std::to_string(read) + " bytes and writes " + std::to_string(bytes));
    if (read > 0 && from % bytes != 0) throw Fault("a misaligned cp.async of " + std::to_string(bytes) + " bytes from " + hex(from));
    for (u32 at = 0; at < read;) {  // pieces whose size is a power of two
      u32 piece = bytes;
      while (at + piece > read || at % piece != 0) piece /= 2;
      std::memcpy(one.bytes.data() + at, memory.at(w, l, Space::global, from + at, piece, Memory::Use::read), piece);
      at += piece;
    }
    if (w.block->chance() % 2 == 0) {
      memory.land(w, l, one.to, one.bytes.data(), bytes);
    } else {
      memory.await(w, l, one.to, bytes);
      w.copies[l].push_back(one);
    }
  });
}

void commit(Warp& w, const Instruction&, u32 mask) {
  each_lane(mask, [&](u32 l) { ++w.copy_groups[l]; });
}

// mode: the number of groups that may stay out, or -1 for all copies, committed or not.
void wait(Warp& w, const Instruction& i, u32 mask) {
  each_lane(mask, [&](u32 l) {
    std::erase_if(w.copies[l], [&](const LateCopy& one) {
      if (i.mode >= 0 && one.group + static_cast<u32>(i.mode) >= w.copy_groups[l]) return false;
      w.block->memory.land(w, l, one.to, one.bytes.data(), one.count);
      return true;
    });
  });
}

}  // namespace

bool decode_copy(Draft& d) {
  Instruction& i = d.instruction;
  if (d.name != "cp" || !d.is("async") || d.is("bulk") || d.is("mbarrier")) return false;
  u64 bits = 0;
  if (d.is("commit_group")) {
    i.execute = &commit;
  } else if (d.is("wait_all")) {
    i.execute = &wait, i.mode = -1;
  } else if (d.is("wait_group")) {
    if (!parse_number(d.arguments.at(0), bits)) return false;
    i.execute = &wait, i.mode = static_cast<int>(bits);
  } else {
    if (d.arguments.size() < 3 || d.arguments.size() > 4 || !parse_number(d.arguments[2], bits)) return false;
    Space shared = Space::shared, global = Space::global;
    i.mode = static_cast<int>(bits);
    i.from[i.from_count++] = d.operands.address(d.arguments[0], i.offset, shared);
    i.from[i.from_count++] = d.operands.address(d.arguments[1], i.offset2, global);
    if (d.arguments.size() == 4) d.add_from(d.arguments[3], 4);
    i.execute = &copy;
  }
  return true;
}

}  // namespace ptx
