// Functions whose results may be off (PTX ISA 9.0, 9.7.3): each is computed exactly and then moved by up to the documented error, always
// in the same way for the same operand. Code that relies on more fails here.
#include <bit>
#include <cmath>

#include "ptx/draft.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

// Moves a normal number by -most … +most units in the last place, by a hash of the operand.
float moved(float exact, float operand, int most) {
  if (!std::isnormal(exact) || operand == 0) return exact;
  const u32 hash = std::bit_cast<u32>(operand) * 2654435761u >> 16;
  const int off = static_cast<int>(hash % static_cast<u32>(2 * most + 1)) - most;
  const auto near = std::bit_cast<float>(std::bit_cast<u32>(exact) + static_cast<u32>(off));
  return std::isnormal(near) ? near : exact;
}
// Moves by up to `most` in absolute terms.
double moved_by(double exact, float operand, double most) {
  const u32 hash = std::bit_cast<u32>(operand) * 2654435761u >> 16;
  return std::isfinite(exact) ? exact + most * (static_cast<double>(hash % 17) - 8) / 8 : exact;
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// CUDA documents exp2f, which is this instruction, and expf, which adds a rounding of its argument, with 2 ulp each. Of whole numbers the
// result is exact: NVIDIA's exp and tanh of doubles rely on it.
float power_of_two(float x) { return x == std::nearbyint(x) ? std::exp2(x) : moved(std::exp2(x), x, 1); }
float reciprocal(float x) { return moved(1 / x, x, 1); }
float root(float x) { return moved(std::sqrt(x), x, 1); }
float reciprocal_root(float x) { return moved(static_cast<float>(1 / std::sqrt(double{x})), x, 2); }
// Within [0.5, 2] the error is absolute, below 2^-22; elsewhere relative.
float logarithm(float x) {
  const double exact = std::log2(double{x});
  if (x >= 0.5f && x <= 2) return static_cast<float>(moved_by(exact, x, x == 1 ? 0 : 0x1p-22));
  return moved(static_cast<float>(exact), x, 2);
}
// The error is documented for small arguments; larger ones are reduced by the caller.
float sine(float x) { return static_cast<float>(moved_by(std::sin(double{x}), x, x == 0 ? 0 : 0x1p-21)); }
float cosine(float x) { return static_cast<float>(moved_by(std::cos(double{x}), x, x == 0 ? 0 : 0x1p-21)); }
float tangent(float x) { return static_cast<float>(std::tanh(double{x}) * (1 + moved_by(0, x, 0x1p-12))); }

template <float (*kOf)(float)>
void one(Warp& w, const Instruction& i, u32 mask) {
  const float* a = w.in<float>(i.from[0]);
  float* to = w.out<float>(i.to[0]);
  each_lane(mask, [&](u32 l) {
    float x = i.flush ? flushed(a[l]) : a[l];
    x = kOf(x);
    if (i.flush) x = flushed(x);
    to[l] = x == x ? x : std::bit_cast<float>(0x7fffffffu);
  });
}

void divide(Warp& w, const Instruction& i, u32 mask) {
  const float *a = w.in<float>(i.from[0]), *b = w.in<float>(i.from[1]);
  float* to = w.out<float>(i.to[0]);
  each_lane(mask, [&](u32 l) {
    const float x = i.flush ? flushed(a[l]) : a[l], y = i.flush ? flushed(b[l]) : b[l];
    const float q = moved(x / y, x, 2);
    to[l] = q == q ? q : std::bit_cast<float>(0x7fffffffu);
  });
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64: of the upper halves, and only the upper half of the result.
template <bool kRoot>
void upper_half(Warp& w, const Instruction& i, u32 mask) {
  const u64* a = w.in<u64>(i.from[0]);
  u64* to = w.out<u64>(i.to[0]);
  constexpr u64 kUpper = 0xffffffff00000000;
  each_lane(mask, [&](u32 l) {
    const auto x = std::bit_cast<double>(a[l] & kUpper);
    double y = kRoot ? 1 / std::sqrt(x) : 1 / x;
    if (std::fpclassify(x) == FP_SUBNORMAL) y = std::copysign(HUGE_VAL, x);
    if (std::fpclassify(y) == FP_SUBNORMAL) y = std::copysign(0.0, y);
    to[l] = std::bit_cast<u64>(y) & kUpper;
  });
}

}  // namespace

bool decode_approximate(Draft& d) {
  if (d.type().kind != Kind::floating) return false;
  const std::string& n = d.name;
  if (d.type().bytes == 8) {
    if (n == "rcp" && d.is("approx")) {
      d.plain(&upper_half<false>, 1);
    } else if (n == "rsqrt") {
      d.plain(&upper_half<true>, 1);
    } else {
      return false;
    }
    return true;
  }
  if (n == "ex2") {
    d.plain(&one<power_of_two>, 1);
  } else if (n == "lg2") {
    d.plain(&one<logarithm>, 1);
  } else if (n == "rcp") {
    d.plain(&one<reciprocal>, 1);
  } else if (n == "sqrt") {
    d.plain(&one<root>, 1);
  } else if (n == "rsqrt") {
    d.plain(&one<reciprocal_root>, 1);
  } else if (n == "sin") {
    d.plain(&one<sine>, 1);
  } else if (n == "cos") {
    d.plain(&one<cosine>, 1);
  } else if (n == "tanh") {
    d.plain(&one<tangent>, 1);
  } else if (n == "div") {
    d.plain(&divide, 2);
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
