// Integer arithmetic (PTX ISA 9.0, 9.7.1 and 9.7.2).
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, i128, u128>,
                                std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, i64, u64>,
                                                   std::conditional_t<std::is_signed_v<T>, i32, u32>>>;

template <class T>
T low_product(T a, T b) {
  return static_cast<T>(static_cast<u64>(static_cast<Unsigned<T>>(a)) * static_cast<u64>(static_cast<Unsigned<T>>(b)));
}
template <class T>
T high_product(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
}

// Each operation is a struct with of(): plain loops over its lanes become vector instructions.
struct Add {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Subtract {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
struct AddSaturated {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(std::clamp<i64>(i64{a} + i64{b}, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
};
struct SubtractSaturated {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(std::clamp<i64>(i64{a} - i64{b}, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    return low_product(a, b);
  }
};
struct MultiplyHigh {
  template <class T>
  static T of(T a, T b) {
    return high_product(a, b);
  }
};
// A quotient by zero has no defined value; all ones is what the hardware gives.
struct Divide {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::of(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Least {
  template <class T>
  static T of(T a, T b) {
    return a < b ? a : b;
  }
};
struct Most {
  template <class T>
  static T of(T a, T b) {
    return a > b ? a : b;
  }
};
struct Negate {
  template <class T>
  static T of(T a) {
    return Subtract::of(T{0}, a);
  }
};
struct Absolute {
  template <class T>
  static T of(T a) {
    return a < 0 ? Subtract::of(T{0}, a) : a;
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
template <class T>
void multiply_wide(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  set_lanes(w.out<Wide<T>>(i.to[0]), mask,
            [&](u32 l) { return static_cast<Wide<T>>(static_cast<Wide<T>>(a[l]) * static_cast<Wide<T>>(b[l])); });
}
template <class T, bool kHigh>
void multiply_add(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]), *c = w.in<T>(i.from[2]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return Add::of(kHigh ? high_product(a[l], b[l]) : low_product(a[l], b[l]), c[l]); });
}
template <class T>
void multiply_add_wide(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  using W = Unsigned<Wide<T>>;
  const W* c = w.in<W>(i.from[2]);
  set_lanes(w.out<W>(i.to[0]), mask,
            [&](u32 l) { return static_cast<W>(static_cast<W>(static_cast<Wide<T>>(a[l]) * static_cast<Wide<T>>(b[l])) + c[l]); });
}

// The bits of an instruction's mode say what it does with the carry.
enum Carry { takes_carry = 1, sets_carry = 2, subtracts = 4, multiplies = 8, multiplies_high = 16 };

template <class T>
void with_carry(Warp& w, const Instruction& i, u32 mask) {
  const T *x = w.in<T>(i.from[0]), *y = w.in<T>(i.from[1]);
  T* to = w.out<T>(i.to[0]);
  each_lane(mask, [&](u32 l) {
    using Sum = u128;
    Sum a = x[l], b = y[l];
    if ((i.mode & (multiplies | multiplies_high)) != 0) {
      a = i.mode & multiplies ? low_product(x[l], y[l]) : high_product(x[l], y[l]);
      b = w.in<T>(i.from[2])[l];
    }
    const Sum carry = (i.mode & takes_carry) != 0 ? w.carry >> l & 1 : 0;
    const Sum sum = (i.mode & subtracts) != 0 ? a - b - carry : a + b + carry;
    to[l] = static_cast<T>(sum);
    if ((i.mode & sets_carry) != 0) w.carry = (w.carry & ~(1u << l)) | static_cast<u32>(sum >> (8 * sizeof(T)) & 1) << l;
  });
}

template <class F>
Execute pick(Type t, F f) {
  switch (t.bytes) {
    case 2:
      return t.is_signed() ? f(i16{}) : f(u16{});
    case 4:
      return t.is_signed() ? f(i32{}) : f(u32{});
    case 8:
      return t.is_signed() ? f(i64{}) : f(u64{});
    default:
      throw std::runtime_error("integer arithmetic of this size is not known");
  }
}
template <class F>
Execute pick_narrow(Type t, F f) {
  if (t.bytes == 2) return t.is_signed() ? f(i16{}) : f(u16{});
  if (t.bytes == 4) return t.is_signed() ? f(i32{}) : f(u32{});
  throw std::runtime_error("a wide product of this size is not known");
}

}  // namespace

bool decode_integer(Draft& d) {
  const Type t = d.type();
  if (t.kind != Kind::is_unsigned && t.kind != Kind::is_signed) return false;
  Instruction& i = d.instruction;
  const std::string& n = d.name;
  const bool product = n == "mul" || n == "mad" || n == "madc";
  if (d.is("cc") || n == "addc" || n == "subc" || n == "madc") {
    i.mode = (n.ends_with("c") && n != "mad" ? takes_carry : 0) | (d.is("cc") ? sets_carry : 0) | (n.starts_with("sub") ? subtracts : 0);
    if (product) i.mode |= d.is("hi") ? multiplies_high : multiplies;
    if (t.bytes < 4) return false;
    d.plain(t.bytes == 8 ? &with_carry<u64> : &with_carry<u32>, product ? 3 : 2);
    return true;
  }
  if (product && d.is("wide")) {
    if (d.arguments.size() != (n == "mul" ? 3U : 4U)) d.refuse("a wrong number of operands");
    i.execute = n == "mul" ? pick_narrow(t, []<class T>(T) -> Execute { return &multiply_wide<T>; })
                           : pick_narrow(t, []<class T>(T) -> Execute { return &multiply_add_wide<T>; });
    d.add_to(d.arguments[0], 2 * t.bytes);
    d.add_from(d.arguments[1], t.bytes);
    d.add_from(d.arguments[2], t.bytes);
    if (n == "mad") d.add_from(d.arguments[3], static_cast<u8>(2 * t.bytes));
    return true;
  }
  if (i.saturate) {
    if (t.bytes != 4 || !t.is_signed() || (n != "add" && n != "sub")) return false;
    d.plain(n == "add" ? &binary<i32, AddSaturated> : &binary<i32, SubtractSaturated>, 2);
    return true;
  }
  const auto two = [&]<class Op>(Op) { d.plain(pick(t, []<class T>(T) -> Execute { return &binary<T, Op>; }), 2); };
  const auto one = [&]<class Op>(Op) { d.plain(pick(t, []<class T>(T) -> Execute { return &unary<T, Op>; }), 1); };
  if (n == "add") {
    two(Add{});
  } else if (n == "sub") {
    two(Subtract{});
  } else if (n == "mul") {
    d.is("hi") ? two(MultiplyHigh{}) : two(Multiply{});
  } else if (n == "mad") {
    d.plain(d.is("hi") ? pick(t, []<class T>(T) -> Execute { return &multiply_add<T, true>; })
                       : pick(t, []<class T>(T) -> Execute { return &multiply_add<T, false>; }),
            3);
  } else if (n == "div") {
    two(Divide{});
  } else if (n == "rem") {
    two(Remainder{});
  } else if (n == "min") {
    two(Least{});
  } else if (n == "max") {
    two(Most{});
  } else if (n == "neg") {
    one(Negate{});
  } else if (n == "abs") {
    one(Absolute{});
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
