// Loads, stores and atomic operations (PTX ISA 9.0, 9.7.9 and 9.7.13).
#include <algorithm>
#include <bit>
#include <cstring>

#include "ptx/draft.h"
#include "ptx/narrow.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

void addresses_of(const Warp& w, const Operand& base, i64 offset, std::array<u64, kLanes>& to) {
  if (base.bytes == 8) {
    const u64* a = w.in<u64>(base);
    for (u32 l = 0; l < kLanes; ++l) to[l] = a[l] + static_cast<u64>(offset);
  } else {
    const u32* a = w.in<u32>(base);
    // An address of 32 bits wraps around, as the hardware's does: nvcc writes [r+516] for an r of -4.
    for (u32 l = 0; l < kLanes; ++l) to[l] = a[l] + static_cast<u32>(offset);
  }
}

u64 read(const u8* at, u32 bytes) {
  u64 x = 0;
  std::memcpy(&x, at, bytes);
  return x;
}

void load(Warp& w, const Instruction& i, u32 mask) {
  std::array<u64, kLanes> a;
  addresses_of(w, i.from[0], i.offset, a);
  const u32 bytes = i.type.bytes, all = bytes * i.vector, shift = 64 - 8 * bytes;
  if (counts()) w.block->counters.request(i.space, a, mask, all, true);
  u64 values[8][kLanes];
  each_lane(mask, [&](u32 l) {
    const u8* at = w.block->memory.at(w, l, i.space, a[l], all, Memory::Use::read);
    for (u32 v = 0; v < i.vector; ++v) {
      u64 x = read(at + v * bytes, bytes);
      if (i.type.is_signed()) x = static_cast<u64>(static_cast<i64>(x << shift) >> shift);
      values[v][l] = x;
    }
  });
  for (u32 v = 0; v < i.vector; ++v) store_wide(w, i.to[v], mask, values[v]);
}

void store(Warp& w, const Instruction& i, u32 mask) {
  std::array<u64, kLanes> a;
  addresses_of(w, i.from[0], i.offset, a);
  const u32 bytes = i.type.bytes, all = bytes * i.vector;
  if (counts()) w.block->counters.request(i.space, a, mask, all, false);
  u64 values[8][kLanes];
  for (u32 v = 0; v < i.vector; ++v) load_wide(w, i.from[1 + v], values[v]);
  each_lane(mask, [&](u32 l) {
    u8* at = w.block->memory.at(w, l, i.space, a[l], all, Memory::Use::write);
    for (u32 v = 0; v < i.vector; ++v) std::memcpy(at + v * bytes, &values[v][l], bytes);
  });
}

enum Update { add, least, most, bit_and, bit_or, bit_xor, exchange, compare_and_swap, increment, decrement };

u64 updated(const Instruction& i, u64 old, u64 x, u64 other) {
  const Type& t = i.type;
  const u32 shift = 64 - 8u * t.bytes;
  const auto is_less = [&](u64 a, u64 b) { return t.is_signed() ? static_cast<i64>(a << shift) < static_cast<i64>(b << shift) : a < b; };
  switch (i.mode) {
    case add:
      if (t.kind == Kind::floating && t.bytes == 8) return std::bit_cast<u64>(std::bit_cast<double>(old) + std::bit_cast<double>(x));
      if (t.kind == Kind::floating)
        return std::bit_cast<u32>(std::bit_cast<float>(static_cast<u32>(old)) + std::bit_cast<float>(static_cast<u32>(x)));
      if (t.is_float()) {
        u64 out = 0;
        for (u32 e = 0; e < t.elements; ++e) {
          const auto a = static_cast<u16>(old >> (16 * e)), b = static_cast<u16>(x >> (16 * e));
          const u16 sum =
              t.kind == Kind::half ? to_half(double{from_half(a)} + from_half(b)) : to_brain(double{from_brain(a)} + from_brain(b));
          out |= u64{sum} << (16 * e);
        }
        return out;
      }
      return old + x;
    case least:
      return is_less(x, old) ? x : old;
    case most:
      return is_less(old, x) ? x : old;
    case bit_and:
      return old & x;
    case bit_or:
      return old | x;
    case bit_xor:
      return old ^ x;
    case exchange:
      return x;
    case compare_and_swap:
      return old == x ? other : old;
    case increment:
      return old >= x ? 0 : old + 1;
    default:
      return old == 0 || old > x ? x : old - 1;
  }
}

// The lanes come one after the other, from one that is drawn: the order is not defined.
void update(Warp& w, const Instruction& i, u32 mask) {
  std::array<u64, kLanes> a;
  addresses_of(w, i.from[0], i.offset, a);
  const u32 bytes = i.type.bytes;
  if (counts()) w.block->counters.request(i.space, a, mask, bytes, false);
  u64 x[kLanes], other[kLanes], old[kLanes]{};
  load_wide(w, i.from[1], x);
  load_wide(w, i.from[i.from_count > 2 ? 2 : 1], other);
  const u32 first = w.block->chance() % kLanes;
  for (u32 k = 0; k < kLanes; ++k) {
    const u32 l = (first + k) % kLanes;
    if ((mask >> l & 1) == 0) continue;
    u8* at = w.block->memory.at(w, l, i.space, a[l], bytes, Memory::Use::update);
    old[l] = read(at, bytes);
    const u64 now = updated(i, old[l], x[l], other[l]);
    std::memcpy(at, &now, bytes);
  }
  if (i.to_count > 0) store_wide(w, i.to[0], mask, old);
}

}  // namespace

bool decode_memory(Draft& d) {
  Instruction& i = d.instruction;
  const std::string& n = d.name;
  if (n == "ld" || n == "ldu" || n == "st") {
    d.take_space();
    i.vector = d.is("v8") ? 8 : d.is("v4") ? 4 : d.is("v2") ? 2 : 1;
    const bool is_load = n != "st";
    if (i.type.bytes == 0 || i.type.bytes > 8) return false;
    i.from[i.from_count++] = d.operands.address(d.arguments.at(is_load ? 1 : 0), i.offset, i.space);
    const std::vector<std::string> values = Draft::listed(d.arguments.at(is_load ? 0 : 1));
    if (values.size() != i.vector) d.refuse("a wrong number of elements");
    for (const std::string& one : values) is_load ? d.add_to(one) : d.add_wide_from(one, i.type.bytes);
    if (i.space == Space::constant) i.space = Space::global;
    i.execute = is_load ? &load : &store;
    return true;
  }
  if (n == "atom" || n == "red") {
    constexpr const char* kNames[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    i.mode = -1;
    for (int k = 0; k < 10; ++k) {
      if (d.is(kNames[k])) i.mode = k;
    }
    if (i.mode < 0 || i.type.bytes > 8 || d.is("v2") || d.is("v4")) return false;
    d.take_space();
    std::size_t k = 0;
    if (n == "atom") d.add_to(d.arguments.at(k++), i.type.bytes);
    i.from[i.from_count++] = d.operands.address(d.arguments.at(k++), i.offset, i.space);
    for (; k < d.arguments.size(); ++k) d.add_from(d.arguments[k], i.type.bytes);
    i.execute = &update;
    return true;
  }
  return false;
}

}  // namespace ptx
