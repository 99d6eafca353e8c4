// cvt and its kin (PTX ISA 9.0, 9.7.9).
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "ptx/draft.h"
#include "ptx/narrow.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

u64 low(u64 x, u32 bytes) { return bytes == 8 ? x : x & ((u64{1} << (8 * bytes)) - 1); }
i64 extended(u64 x, u32 bytes) { return static_cast<i64>(x << (64 - 8 * bytes)) >> (64 - 8 * bytes); }

enum ToWhole { none, nearest, zero, down, up };

double whole(double x, int how) {
  switch (how) {
    case nearest:
      return std::nearbyint(x);
    case zero:
      return std::trunc(x);
    case down:
      return std::floor(x);
    case up:
      return std::ceil(x);
    default:
      return x;
  }
}

double value(const Type& t, u64 bits) {
  if (t.kind == Kind::half) return from_half(static_cast<u16>(bits));
  if (t.kind == Kind::brain) return from_brain(static_cast<u16>(bits));
  return t.bytes == 8 ? std::bit_cast<double>(bits) : double{std::bit_cast<float>(static_cast<u32>(bits))};
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// Rounds a number that is exact in x to the type.
u64 float_bits(const Instruction& i, double x) {
  if (i.saturate) x = x > 0 ? std::min(x, 1.0) : 0;
  if (i.type2.kind == Kind::half) return to_half(x, i.rounding);
  if (i.type2.kind == Kind::brain) return to_brain(x, i.rounding);
  if (i.type2.bytes == 8) return std::bit_cast<u64>(x);
  if (i.rounding != 0) std::fesetround(i.rounding);
  volatile auto narrow = static_cast<float>(x);
  if (i.rounding != 0) std::fesetround(FE_TONEAREST);
  const float y = i.flush ? flushed(narrow) : narrow;
  return y == y ? std::bit_cast<u32>(y) : 0x7fffffff;
}

// Saturates as the hardware does; NaN becomes 0, or 2^63 where the result has 64 bits.
u64 integer_bits(const Type& to, double x) {
  if (std::isnan(x)) return to.bytes == 8 ? u64{1} << 63 : 0;
  const int bits = 8 * to.bytes;
  if (to.is_signed()) {
    const double limit = std::ldexp(1, bits - 1);
    if (x >= limit) return (u64{1} << (bits - 1)) - 1;
    if (x < -limit) return u64{1} << (bits - 1);
    return static_cast<u64>(static_cast<i64>(x));
  }
  if (x <= -1 || x < 0) return 0;
  if (x >= std::ldexp(1, bits)) return low(~u64{0}, to.bytes);
  return static_cast<u64>(x);
}

// Instruction::type2 is what it converts to and type what from, in the order of the modifiers.
template <class F>
void convert(Warp& w, const Instruction& i, u32 mask, F f) {
  u64 from[kLanes], to[kLanes];
  load_wide(w, i.from[0], from);
  for (u32 l = 0; l < kLanes; ++l) to[l] = (mask >> l & 1) != 0 ? f(low(from[l], i.type.bytes)) : 0;
  store_wide(w, i.to[0], mask, to);
}
u64 fit(const Type& to, u64 x, u32 register_bytes) {  // a register wider than the result is filled with its sign or zeros
  return to.is_signed() && register_bytes > to.bytes ? static_cast<u64>(extended(x, to.bytes)) : low(x, to.bytes);
}

template <bool kSigned>
void integers(Warp& w, const Instruction& i, u32 mask) {
  u64 x[kLanes];
  load_wide(w, i.from[0], x);
  const u32 from = 64 - 8u * i.type.bytes, to = 64 - 8u * i.type2.bytes;
  for (u32 l = 0; l < kLanes; ++l) {
    u64 v = x[l] << from;
    v = kSigned ? static_cast<u64>(static_cast<i64>(v) >> from) : v >> from;
    v <<= to;
    x[l] = i.type2.is_signed() ? static_cast<u64>(static_cast<i64>(v) >> to) : v >> to;
  }
  store_wide(w, i.to[0], mask, x);
}
void saturated_integers(Warp& w, const Instruction& i, u32 mask) {
  convert(w, i, mask, [&](u64 x) {
    const int bits = 8 * i.type2.bytes;
    i128 v = i.type.is_signed() ? i128{extended(x, i.type.bytes)} : i128{x};
    const i128 top = (i128{1} << (i.type2.is_signed() ? bits - 1 : bits)) - 1;
    v = std::clamp<i128>(v, i.type2.is_signed() ? -top - 1 : i128{0}, top);
    return fit(i.type2, static_cast<u64>(v), i.to[0].bytes);
  });
}
void integer_to_float(Warp& w, const Instruction& i, u32 mask) {
  if (i.rounding != 0) std::fesetround(i.rounding);
  const Instruction& s = i;
  convert(w, i, mask, [&](u64 x) -> u64 {
    const i64 v = extended(x, s.type.bytes);
    if (s.type2.kind == Kind::floating && s.type2.bytes == 4) {  // directly, since a double would round first
      volatile float y = s.type.is_signed() ? static_cast<float>(v) : static_cast<float>(x);
      return std::bit_cast<u32>(float{y});
    }
    volatile double y = s.type.is_signed() ? static_cast<double>(v) : static_cast<double>(x);
    if (s.type2.kind == Kind::half) return to_half(y, s.rounding);
    if (s.type2.kind == Kind::brain) return to_brain(y, s.rounding);
    return std::bit_cast<u64>(double{y});
  });
  if (i.rounding != 0) std::fesetround(FE_TONEAREST);
}
void float_to_integer(Warp& w, const Instruction& i, u32 mask) {
  convert(w, i, mask, [&](u64 x) {
    double v = value(i.type, x);
    if (i.flush) v = flushed(static_cast<float>(v));
    return fit(i.type2, integer_bits(i.type2, whole(v, i.mode)), i.to[0].bytes);
  });
}
void float_to_float(Warp& w, const Instruction& i, u32 mask) {
  convert(w, i, mask, [&](u64 x) {
    double v = whole(value(i.type, x), i.mode);
    if (i.flush && i.type.bytes == 4) v = flushed(static_cast<float>(v));
    return float_bits(i, v);
  });
}
void half_to_float(Warp& w, const Instruction& i, u32 mask) {
  const u16* a = w.in<u16>(i.from[0]);
  set_lanes(w.out<float>(i.to[0]), mask, [&](u32 l) {
    const float x = from_half(a[l]);
    return x == x ? x : std::bit_cast<float>(0x7fffffffu);
  });
}
template <u16 (*kRound)(float)>
void float_to_narrow(Warp& w, const Instruction& i, u32 mask) {
  const float* a = w.in<float>(i.from[0]);
  set_lanes(w.out<u16>(i.to[0]), mask, [&](u32 l) { return kRound(a[l]); });
}
// cvt.rn.bf16x2.f32 d, a, b: a goes to the upper half. mode2: .relu
template <u16 (*kRound)(float)>
void pair(Warp& w, const Instruction& i, u32 mask) {
  const float *a = w.in<float>(i.from[0]), *b = w.in<float>(i.from[1]);
  const auto one = [&](float x) { return u32{kRound(i.mode2 != 0 && x < 0 ? 0 : x)}; };
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return one(a[l]) << 16 | one(b[l]); });
}
// cvt.rna.tf32.f32: 10 bits of the fraction, ties away from zero.
void to_tf32(Warp& w, const Instruction& i, u32 mask) {
  const u32* a = w.in<u32>(i.from[0]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return (a[l] & 0x7f800000u) == 0x7f800000u ? a[l] : (a[l] + 0x1000u) & ~0x1fffu; });
}

}  // namespace

bool decode_conversion(Draft& d) {
  if (d.name != "cvt" || d.is("e4m3x2") || d.is("e5m2x2")) return false;
  Instruction& i = d.instruction;
  if (d.is("tf32")) {
    if (!d.is("rna")) return false;
    d.plain(&to_tf32, 1);
    return true;
  }
  if (d.types.size() != 2) return false;
  const Type to = d.types[0], from = d.types[1];
  i.type2 = to, i.type = from;
  i.mode = d.is("rni") ? nearest : d.is("rzi") ? zero : d.is("rmi") ? down : d.is("rpi") ? up : none;
  if (to.elements == 2) {
    if (from.bytes != 4 || i.rounding != 0 || i.saturate || d.arguments.size() != 3) return false;
    i.execute = to.kind == Kind::half ? &pair<float_to_half> : &pair<float_to_brain>;
    i.mode2 = d.is("relu");
    d.add_to(d.arguments[0], 4);
    d.add_from(d.arguments[1], 4);
    d.add_from(d.arguments[2], 4);
    return true;
  }
  if (d.arguments.size() != 2) return false;
  d.add_to(d.arguments[0]);
  d.add_wide_from(d.arguments[1], from.bytes);
  const bool plain =
      i.rounding == 0 && !i.flush && !i.saturate && i.mode == none && i.from[0].bytes == from.bytes && i.to[0].bytes == to.bytes;
  const bool f32_from = from.kind == Kind::floating && from.bytes == 4, f32_to = to.kind == Kind::floating && to.bytes == 4;
  if (!from.is_float() && !to.is_float())
    i.execute = i.saturate ? &saturated_integers : from.is_signed() ? &integers<true> : &integers<false>;
  else if (!from.is_float())
    i.execute = &integer_to_float;
  else if (!to.is_float())
    i.execute = &float_to_integer;
  else if (plain && from.kind == Kind::half && f32_to)
    i.execute = &half_to_float;
  else if (plain && f32_from && to.kind == Kind::half)
    i.execute = &float_to_narrow<float_to_half>;
  else if (plain && f32_from && to.kind == Kind::brain)
    i.execute = &float_to_narrow<float_to_brain>;
  else
    i.execute = &float_to_float;
  return true;
}

}  // namespace ptx
