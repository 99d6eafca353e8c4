// Instructions among the lanes of a warp, and barriers (PTX ISA 9.0, 9.7.9.6 and 9.7.13).
#include <algorithm>
#include <cstring>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

enum Shuffle { up, down, butterfly, index };

void shuffle(Warp& w, const Instruction& i, u32 mask) {
  u32 values[kLanes];
  std::memcpy(values, w.in<u32>(i.from[0]), sizeof values);
  const u32 *by = w.in<u32>(i.from[1]), *clamp = w.in<u32>(i.from[2]), *masks = w.in<u32>(i.mask);
  u32* to = i.to[0].is_sink ? nullptr : w.out<u32>(i.to[0]);
  u32 valid = 0;
  each_lane(mask, [&](u32 l) {
    const u32 b = by[l] & 31, segment = clamp[l] >> 8 & 31, c = clamp[l] & 31;
    const u32 least = l & segment, most = (l & segment) | (c & ~segment);
    u32 from = l;
    bool is_valid = false;
    switch (i.mode) {
      case up:
        from = l - b, is_valid = static_cast<i32>(from) >= static_cast<i32>(most);
        break;
      case down:
        from = l + b, is_valid = from <= most;
        break;
      case butterfly:
        from = l ^ b, is_valid = from <= most;
        break;
      default:
        from = least | (b & ~segment), is_valid = from <= most;
    }
    if (!is_valid) from = l;
    if ((mask >> from & 1) == 0 || (masks[l] >> from & 1) == 0)
      throw Fault("lane " + std::to_string(l) + " reads lane " + std::to_string(from) + ", which is not there");
    if (to) to[l] = values[from];
    valid |= static_cast<u32>(is_valid) << l;
  });
  if (i.to_count > 1) w.set_predicate(i.to[1], valid, mask);
}

enum Vote { all, any, uniform, ballot };

void vote(Warp& w, const Instruction& i, u32 mask) {
  const u32 *masks = w.in<u32>(i.mask), votes = w.predicate(i.from[0]);
  u32 yes = 0, ballots[kLanes]{};
  each_lane(mask, [&](u32 l) {
    const u32 members = masks[l] & mask, here = votes & members;
    ballots[l] = here;
    const bool holds = i.mode == all ? here == members : i.mode == any ? here != 0 : here == 0 || here == members;
    yes |= static_cast<u32>(holds) << l;
  });
  if (i.mode == ballot)
    set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return ballots[l]; });
  else
    w.set_predicate(i.to[0], yes, mask);
}

// mode: match.all instead of match.any.
template <class T>
void match(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  const u32* masks = w.in<u32>(i.mask);
  u32 same[kLanes]{}, whole = 0;
  each_lane(mask, [&](u32 l) {
    each_lane(masks[l] & mask, [&](u32 other) { same[l] |= static_cast<u32>(a[other] == a[l]) << other; });
    if (same[l] == (masks[l] & mask)) whole |= 1u << l;
  });
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return i.mode != 0 && (whole >> l & 1) == 0 ? 0 : same[l]; });
  if (i.to_count > 1) w.set_predicate(i.to[1], whole, mask);
}

enum Reduction { sum, least, most, bit_and, bit_or, bit_xor };

template <class T>
void reduce(Warp& w, const Instruction& i, u32 mask) {
  T values[kLanes], results[kLanes]{};
  std::memcpy(values, w.in<T>(i.from[0]), sizeof values);
  const u32* masks = w.in<u32>(i.mask);
  each_lane(mask, [&](u32 l) {
    bool first = true;
    T x = 0;
    each_lane(masks[l] & mask, [&](u32 other) {
      const T y = values[other];
      const T both[] = {static_cast<T>(static_cast<u32>(x) + static_cast<u32>(y)),
                        std::min(x, y),
                        std::max(x, y),
                        static_cast<T>(x & y),
                        static_cast<T>(x | y),
                        static_cast<T>(x ^ y)};
      x = first ? y : both[i.mode];
      first = false;
    });
    results[l] = x;
  });
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return results[l]; });
}

void active(Warp& w, const Instruction& i, u32 mask) {
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32) { return mask; });
}

void warp_barrier(Warp& w, const Instruction&, u32 mask) {
  if (mask == w.alive) ++w.synced;  // a barrier of some lanes orders nothing that the watch for races knows
}

void elect(Warp& w, const Instruction& i, u32 mask) {
  const auto leader = static_cast<u32>(__builtin_ctz(mask));
  if (!i.to[0].is_sink) set_lanes(w.out<u32>(i.to[0]), mask, [&](u32) { return leader; });
  w.set_predicate(i.to[1], 1u << leader, mask);
}

void trap(Warp&, const Instruction&, u32) { throw Fault("a trap"); }

void take_two(Draft& d, const std::string& to, int first_bytes) {
  const std::size_t bar = to.find('|');
  d.add_to(trimmed(to.substr(0, bar)), first_bytes);
  if (bar != std::string::npos) d.add_to(trimmed(to.substr(bar + 1)), 0);
}

}  // namespace

bool decode_warp(Draft& d) {
  Instruction& i = d.instruction;
  const std::string& n = d.name;
  const auto gathers = [&](const std::string& mask) {
    i.flow = Flow::gather;
    i.mask = d.operands.source(mask, 4);
  };
  if (n == "trap") {
    i.execute = &trap;
  } else if (n == "bar" && d.is("warp")) {
    i.execute = &warp_barrier;
    gathers(d.arguments.at(0));
  } else if ((n == "bar" || n == "barrier") && d.is("sync") && d.arguments.size() == 1) {
    i.flow = Flow::barrier;
  } else if (n == "activemask") {
    i.execute = &active;
    d.add_to(d.arguments.at(0), 4);
  } else if (n == "shfl" && d.is("sync")) {
    i.mode = d.is("up") ? up : d.is("down") ? down : d.is("bfly") ? butterfly : index;
    i.execute = &shuffle;
    take_two(d, d.arguments.at(0), 4);
    for (std::size_t k = 1; k < 4; ++k) d.add_from(d.arguments.at(k), 4);
    gathers(d.arguments.at(4));
  } else if (n == "vote" && d.is("sync")) {
    i.mode = d.is("all") ? all : d.is("any") ? any : d.is("uni") ? uniform : ballot;
    i.execute = &vote;
    d.add_to(d.arguments.at(0), i.mode == ballot ? 4 : 0);
    d.add_from(d.arguments.at(1), 0);
    gathers(d.arguments.at(2));
  } else if (n == "match" && d.is("sync")) {
    i.mode = d.is("all");
    i.execute = i.type.bytes == 8 ? &match<u64> : &match<u32>;
    take_two(d, d.arguments.at(0), 4);
    d.add_from(d.arguments.at(1), i.type.bytes);
    gathers(d.arguments.at(2));
  } else if (n == "redux" && d.is("sync") && i.type.bytes == 4 && !i.type.is_float()) {
    i.mode = d.is("add") ? sum : d.is("min") ? least : d.is("max") ? most : d.is("and") ? bit_and : d.is("or") ? bit_or : bit_xor;
    i.execute = i.type.is_signed() ? &reduce<i32> : &reduce<u32>;
    d.add_to(d.arguments.at(0), 4);
    d.add_from(d.arguments.at(1), 4);
    gathers(d.arguments.at(2));
  } else if (n == "elect") {
    i.execute = &elect;
    take_two(d, d.arguments.at(0), 4);
    gathers(d.arguments.at(1));
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
