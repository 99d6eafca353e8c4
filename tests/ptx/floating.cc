// Arithmetic of f32 and f64 that IEEE 754 defines (PTX ISA 9.0, 9.7.3). An f32 result that is NaN is 0x7fffffff.
#include <bit>
#include <cfenv>
#include <cmath>
#include <type_traits>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }
double canonical(double x) { return x; }

struct Add {
  template <class T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Divide {
  template <class T>
  static T of(T a, T b) {
    return a / b;
  }
};
struct MultiplyAdd {
  template <class T>
  static T of(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Root {
  template <class T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  static T of(T a) {
    return 1 / a;
  }
};
// Of a number and a NaN, min and max return the number. -0 is less than +0.
struct Least {
  template <class T>
  static T of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct Most {
  template <class T>
  static T of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  }
};
struct LeastOrNan {
  template <class T>
  static T of(T a, T b) {
    return a != a ? a : b != b ? b : Least::of(a, b);
  }
};
struct MostOrNan {
  template <class T>
  static T of(T a, T b) {
    return a != a ? a : b != b ? b : Most::of(a, b);
  }
};

template <class T, class Op, int kSources>
T apply(T a, T b, T c) {
  if constexpr (kSources == 1) return Op::of(a);
  if constexpr (kSources == 2) return Op::of(a, b);
  if constexpr (kSources == 3) return Op::of(a, b, c);
}

template <class T, class Op, int kSources>
void to_nearest(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[kSources > 1 ? 1 : 0]), *c = w.in<T>(i.from[kSources > 2 ? 2 : 0]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return canonical(apply<T, Op, kSources>(a[l], b[l], c[l])); });
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
double flushed(double x) { return x; }

// Computes an instruction that has a rounding mode, .ftz or .sat. The values are volatile so that the compiler computes nothing in another
// mode.
template <class T, class Op, int kSources>
void as_said(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[kSources > 1 ? 1 : 0]), *c = w.in<T>(i.from[kSources > 2 ? 2 : 0]);
  T* to = w.out<T>(i.to[0]);
  if (i.rounding != 0) std::fesetround(i.rounding);
  each_lane(mask, [&](u32 l) {
    const auto source = [&](T x) { return i.flush ? flushed(x) : x; };
    volatile T x = source(a[l]), y = source(b[l]), z = source(c[l]);
    volatile T result = apply<T, Op, kSources>(x, y, z);
    T value = result;
    if (i.flush) value = flushed(value);
    if (i.saturate) value = value > 0 ? (value < 1 ? value : T{1}) : T{0};
    to[l] = canonical(value);
  });
  if (i.rounding != 0) std::fesetround(FE_TONEAREST);
}

template <class Op, int kSources>
void take(Draft& d) {
  const bool plain = d.instruction.rounding == 0 && !d.instruction.flush && !d.instruction.saturate;
  const Execute execute = d.type().bytes == 8 ? (plain ? &to_nearest<double, Op, kSources> : &as_said<double, Op, kSources>)
                                              : (plain ? &to_nearest<float, Op, kSources> : &as_said<float, Op, kSources>);
  d.plain(execute, kSources);
}

// The mode of an instruction that changes only the sign says which sign it gives.
enum Sign { absolute, negative, copied };

template <class T>
void change_sign(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[i.mode == copied ? 1 : 0]);
  constexpr T kSign = T{1} << (8 * sizeof(T) - 1);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) {
    T x = a[l];
    if constexpr (sizeof(T) == 4) {
      if (i.flush) x = std::bit_cast<u32>(flushed(std::bit_cast<float>(x)));
    }
    if (i.mode == copied) return static_cast<T>((b[l] & ~kSign) | (x & kSign));  // the sign of the first, the rest of the second
    return i.mode == negative ? static_cast<T>(x ^ kSign) : static_cast<T>(x & ~kSign);
  });
}

enum Property { finite, infinite, number, nan, normal, subnormal };

template <class T>
void test_property(Warp& w, const Instruction& i, u32 mask) {
  const T* a = w.in<T>(i.from[0]);
  u32 bits = 0;
  each_lane(mask, [&](u32 l) {
    const int c = std::fpclassify(a[l]);
    bool holds = false;
    switch (i.mode) {
      case finite:
        holds = c != FP_INFINITE && c != FP_NAN;
        break;
      case infinite:
        holds = c == FP_INFINITE;
        break;
      case number:
        holds = c != FP_NAN;
        break;
      case nan:
        holds = c == FP_NAN;
        break;
      case normal:
        holds = c == FP_NORMAL || c == FP_ZERO;
        break;
      default:
        holds = c == FP_SUBNORMAL;
    }
    bits |= static_cast<u32>(holds) << l;
  });
  w.set_predicate(i.to[0], bits, mask);
}

}  // namespace

bool decode_floating(Draft& d) {
  if (d.type().kind != Kind::floating || d.is("approx") || d.is("full")) return false;
  const std::string& n = d.name;
  const bool wide = d.type().bytes == 8;
  if (n == "add") {
    take<Add, 2>(d);
  } else if (n == "sub") {
    take<Subtract, 2>(d);
  } else if (n == "mul") {
    take<Multiply, 2>(d);
  } else if (n == "fma" || n == "mad") {
    take<MultiplyAdd, 3>(d);
  } else if (n == "div") {
    take<Divide, 2>(d);
  } else if (n == "sqrt") {
    take<Root, 1>(d);
  } else if (n == "rcp") {
    take<Reciprocal, 1>(d);
  } else if (n == "min") {
    d.is("NaN") ? take<LeastOrNan, 2>(d) : take<Least, 2>(d);
  } else if (n == "max") {
    d.is("NaN") ? take<MostOrNan, 2>(d) : take<Most, 2>(d);
  } else if (n == "abs" || n == "neg" || n == "copysign") {
    d.instruction.mode = n == "abs" ? absolute : n == "neg" ? negative : copied;
    d.plain(wide ? &change_sign<u64> : &change_sign<u32>, n == "copysign" ? 2 : 1);
  } else if (n == "testp") {
    d.instruction.mode = d.is("finite")       ? finite
                         : d.is("infinite")   ? infinite
                         : d.is("number")     ? number
                         : d.is("notanumber") ? nan
                         : d.is("normal")     ? normal
                                              : subnormal;
    d.plain(wide ? &test_property<double> : &test_property<float>, 1, 0);
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
