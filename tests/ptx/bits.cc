// Logic, shifts and bit fields (PTX ISA 9.0, 9.7.1 and 9.7.8).
#include <algorithm>
#include <type_traits>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T of(T a) {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <class T>
  static T of(T a) {
    return a == 0;
  }
};
struct Reverse {
  template <class T>
  static T of(T a) {
    T out = 0;
    for (std::size_t n = 0; n < 8 * sizeof(T); ++n) out = static_cast<T>(out | (a >> n & 1) << (8 * sizeof(T) - 1 - n));
    return out;
  }
};

template <class T, class Op>
void unary(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return Op::of(a[l]); });
}
template <class T, class Op>
void binary(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return Op::of(a[l], b[l]); });
}

// Shifts by more than the width give what a shift by the width gives: zeros, or the sign.
template <class T>
void shift_left(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  const u32* by = w.in<u32>(i.from[1]);
  constexpr u32 kWidth = 8 * sizeof(T);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return by[l] >= kWidth ? T{0} : static_cast<T>(a[l] << (by[l] % kWidth)); });
}
template <class T>
void shift_right(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  const u32* by = w.in<u32>(i.from[1]);
  constexpr u32 kWidth = 8 * sizeof(T);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) {
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a[l] >> std::min(by[l], kWidth - 1));
    return by[l] >= kWidth ? T{0} : static_cast<T>(a[l] >> (by[l] % kWidth));
  });
}
// mode: to the right; mode2: .clamp instead of .wrap.
void funnel_shift(Warp& w, const Instruction& i, u32 mask) {
  const u32 *low = w.in<u32>(i.from[0]), *high = w.in<u32>(i.from[1]), *by = w.in<u32>(i.from[2]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) {
    const u64 both = u64{high[l]} << 32 | low[l];
    const u32 n = i.mode2 != 0 ? std::min(by[l], 32u) : by[l] & 31;
    return static_cast<u32>(i.mode != 0 ? both >> n : both << n >> 32);
  });
}
void any_logic(Warp& w, const Instruction& i, u32 mask) {
  const u32 *a = w.in<u32>(i.from[0]), *b = w.in<u32>(i.from[1]), *c = w.in<u32>(i.from[2]);
  const auto table = static_cast<u32>(i.mode);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) {
    u32 out = 0;
    for (u32 n = 0; n < 8; ++n) {
      if ((table >> n & 1) != 0) out |= ((n & 4) != 0 ? a[l] : ~a[l]) & ((n & 2) != 0 ? b[l] : ~b[l]) & ((n & 1) != 0 ? c[l] : ~c[l]);
    }
    return out;
  });
}

template <class T>
void population(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return static_cast<u32>(__builtin_popcountll(a[l])); });
}
template <class T>
u32 leading_zeros(T a) {
  return a == 0 ? 8 * sizeof(T) : static_cast<u32>(__builtin_clzll(a)) - (64 - 8 * sizeof(T));
}
template <class T>
void count_zeros(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return leading_zeros(a[l]); });
}
// Finds the highest bit that differs from the sign. mode: .shiftamt.
template <class T>
void find_bit(Warp& w, const Instruction& i, u32 mask) {
  using U = std::make_unsigned_t<T>;
  const T* a = w.in<T>(i.from[0]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) {
    const U x = static_cast<U>(a[l] < 0 ? ~a[l] : a[l]);
    if (x == 0) return ~0u;
    const u32 above = leading_zeros(x);
    return i.mode != 0 ? above : static_cast<u32>(8 * sizeof(T)) - 1 - above;
  });
}
template <class T>
void extract(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  const u32 *at = w.in<u32>(i.from[1]), *length = w.in<u32>(i.from[2]);
  constexpr u32 kWidth = 8 * sizeof(T);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) {
    const u32 begin = at[l] & 255, count = length[l] & 255;
    if (count == 0) return T{0};
    const bool sign = std::is_signed_v<T> && (a[l] >> std::min(begin + count - 1, kWidth - 1) & 1) != 0;
    std::make_unsigned_t<T> out = 0;
    for (u32 n = 0; n < kWidth; ++n) {
      const bool bit = n < count && begin + n < kWidth ? (a[l] >> (begin + n) & 1) != 0 : sign;
      out |= static_cast<std::make_unsigned_t<T>>(bit) << n;
    }
    return static_cast<T>(out);
  });
}
template <class T>
void insert(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  const u32 *at = w.in<u32>(i.from[2]), *length = w.in<u32>(i.from[3]);
  constexpr u32 kWidth = 8 * sizeof(T);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) {
    const u32 begin = at[l] & 255, count = length[l] & 255;
    if (begin >= kWidth || count == 0) return b[l];
    const T field = static_cast<T>((count >= kWidth ? ~T{0} : (T{1} << count) - 1) << begin);
    return static_cast<T>((b[l] & ~field) | (a[l] << begin & field));
  });
}
void permute(Warp& w, const Instruction& i, u32 mask) {
  const u32 *a = w.in<u32>(i.from[0]), *b = w.in<u32>(i.from[1]), *c = w.in<u32>(i.from[2]);
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) {
    const u64 bytes = u64{b[l]} << 32 | a[l];
    u32 out = 0;
    for (u32 n = 0; n < 4; ++n) {
      const u32 selector = c[l] >> (4 * n) & 15;
      u32 byte = static_cast<u32>(bytes >> (8 * (selector & 7)) & 255);
      if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      out |= byte << (8 * n);
    }
    return out;
  });
}

template <class F>
Execute pick(Type t, F f) {
  if (t.bytes == 2) return f(u16{});
  if (t.bytes == 4) return f(u32{});
  if (t.bytes == 8) return f(u64{});
  throw std::runtime_error("bits of this size are not known");
}
template <class F>
Execute pick_signed(Type t, F f) {
  if (t.bytes == 4) return t.is_signed() ? f(i32{}) : f(u32{});
  if (t.bytes == 8) return t.is_signed() ? f(i64{}) : f(u64{});
  throw std::runtime_error("bit fields of this size are not known");
}

// Takes operands of these sizes; the destination has `result` bytes.
void take(Draft& d, Execute execute, u8 result, std::initializer_list<u8> sources) {
  if (d.arguments.size() != sources.size() + 1) d.refuse("a wrong number of operands");
  d.instruction.execute = execute;
  d.add_to(d.arguments[0], result);
  std::size_t k = 1;
  for (const u8 bytes : sources) d.add_from(d.arguments[k++], bytes);
}

}  // namespace

bool decode_bits(Draft& d) {
  const Type t = d.type();
  Instruction& i = d.instruction;
  const std::string& n = d.name;
  if (t.kind == Kind::predicate || t.is_float()) return false;
  const auto two = [&]<class Op>(Op) { d.plain(pick(t, []<class T>(T) -> Execute { return &binary<T, Op>; }), 2); };
  const auto one = [&]<class Op>(Op) { d.plain(pick(t, []<class T>(T) -> Execute { return &unary<T, Op>; }), 1); };
  if (n == "and") {
    two(And{});
  } else if (n == "or") {
    two(Or{});
  } else if (n == "xor") {
    two(Xor{});
  } else if (n == "not") {
    one(Not{});
  } else if (n == "cnot") {
    one(LogicalNot{});
  } else if (n == "brev") {
    one(Reverse{});
  } else if (n == "shl") {
    take(d, pick(t, []<class T>(T) -> Execute { return &shift_left<T>; }), t.bytes, {t.bytes, 4});
  } else if (n == "shr") {
    Execute execute = pick(t, []<class T>(T) -> Execute { return &shift_right<T>; });
    if (t.is_signed()) execute = pick(t, []<class T>(T) -> Execute { return &shift_right<std::make_signed_t<T>>; });
    take(d, execute, t.bytes, {t.bytes, 4});
  } else if (n == "shf") {
    i.mode = d.is("r"), i.mode2 = d.is("clamp");
    take(d, &funnel_shift, 4, {4, 4, 4});
  } else if (n == "lop3") {
    u64 table = 0;
    if (d.arguments.size() != 5 || !parse_number(d.arguments[4], table)) return false;
    i.mode = static_cast<int>(table);
    d.arguments.pop_back();
    take(d, &any_logic, 4, {4, 4, 4});
  } else if (n == "popc") {
    take(d, pick(t, []<class T>(T) -> Execute { return &population<T>; }), 4, {t.bytes});
  } else if (n == "clz") {
    take(d, pick(t, []<class T>(T) -> Execute { return &count_zeros<T>; }), 4, {t.bytes});
  } else if (n == "bfind") {
    i.mode = d.is("shiftamt");
    take(d, pick_signed(t, []<class T>(T) -> Execute { return &find_bit<T>; }), 4, {t.bytes});
  } else if (n == "bfe") {
    take(d, pick_signed(t, []<class T>(T) -> Execute { return &extract<T>; }), t.bytes, {t.bytes, 4, 4});
  } else if (n == "bfi") {
    take(d, pick(t, []<class T>(T) -> Execute { return &insert<T>; }), t.bytes, {t.bytes, t.bytes, 4, 4});
  } else if (n == "prmt" && d.modifiers.size() == 1) {
    take(d, &permute, 4, {4, 4, 4});
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
