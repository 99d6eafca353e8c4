// mov, which also packs and unpacks, and cvta (PTX ISA 9.0, 9.7.9).
#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

void do_nothing(Warp&, const Instruction&, u32) {}

template <class T>
void move(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return a[l]; });
}

u64 lane_of(const Warp& w, const Operand& o, u32 lane) {
  return o.bytes == 8 ? w.in<u64>(o)[lane] : o.bytes == 4 ? w.in<u32>(o)[lane] : o.bytes == 2 ? w.in<u16>(o)[lane] : w.in<u8>(o)[lane];
}

// The first element is the lowest.
void pack(Warp& w, const Instruction& i, u32 mask) {
  u64 all[kLanes]{};
  for (u32 k = 0; k < i.from_count; ++k) {
    const u32 shift = 8u * k * i.from[k].bytes;
    for (u32 l = 0; l < kLanes; ++l) all[l] |= lane_of(w, i.from[k], l) << shift;
  }
  store_wide(w, i.to[0], mask, all);
}
void unpack(Warp& w, const Instruction& i, u32 mask) {
  u64 all[kLanes], part[kLanes];
  load_wide(w, i.from[0], all);
  for (u32 k = 0; k < i.to_count; ++k) {
    for (u32 l = 0; l < kLanes; ++l) part[l] = all[l] >> (8u * k * static_cast<u32>(i.mode));
    store_wide(w, i.to[k], mask, part);
  }
}

// Converts an address of a space to a generic address, or back (mode 1).
void convert_address(Warp& w, const Instruction& i, u32 mask) {
  const u64* a = w.in<u64>(i.from[0]);
  u64* to = w.out<u64>(i.to[0]);
  const u64 window = window_of(i.space);
  each_lane(mask, [&](u32 l) {
    if (i.mode == 1 && window != 0 && (a[l] & kWindowMask) != window)
      throw Fault("the address " + hex(a[l]) + " is none of the space it is converted to");
    to[l] = i.mode == 1 ? a[l] - window : a[l] + window;
  });
}

}  // namespace

bool decode_move(Draft& d) {
  Instruction& i = d.instruction;
  const Type t = d.type();
  if (d.name == "cvta") {
    d.take_space();
    i.mode = d.is("to");
    d.plain(&convert_address, 1);
    return true;
  }
  if (d.name == "membar" || d.name == "fence" || d.name == "prefetch" || d.name == "prefetchu" || d.name == "nanosleep" ||
      d.name == "griddepcontrol" || d.name == "discard" || d.name == "applypriority") {
    i.execute = &do_nothing;
    return true;
  }
  if (d.name != "mov" || t.kind == Kind::predicate || t.bytes < 2 || t.bytes > 8) return false;
  const std::vector<std::string> to = Draft::listed(d.arguments.at(0)), from = Draft::listed(d.arguments.at(1));
  if (to.size() > 1) {
    i.mode = t.bytes / static_cast<int>(to.size());
    i.execute = &unpack;
    for (const std::string& one : to) d.add_to(one, i.mode);
    d.add_from(from.at(0), t.bytes);
  } else if (from.size() > 1) {
    i.execute = &pack;
    d.add_to(to[0], t.bytes);
    for (const std::string& one : from) d.add_from(one, static_cast<u8>(t.bytes / from.size()));
  } else {
    d.plain(t.bytes == 8 ? &move<u64> : t.bytes == 4 ? &move<u32> : &move<u16>, 1);
  }
  return true;
}

}  // namespace ptx
