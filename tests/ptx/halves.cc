// Arithmetic of f16, bf16 and pairs of them (PTX ISA 9.0, 9.7.4).
#include <algorithm>
#include <cmath>

#include "ptx/draft.h"
#include "ptx/narrow.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

enum Op { add, subtract, multiply, multiply_add, least, most, negative, absolute, power_of_two, tangent };

// The operands are exact doubles, in which sums and products are exact enough to round once: of f16 and bf16 they have at most 24 bits.
double apply(int op, double a, double b, double c) {
  switch (op) {
    case add:
      return a + b;
    case subtract:
      return a - b;
    case multiply:
      return a * b;
    case multiply_add:
      return std::fma(a, b, c);
    case least:
      return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    case most:
      return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
    case power_of_two:
      return std::exp2(a);
    default:
      return std::tanh(a);
  }
}

void run(Warp& w, const Instruction& i, u32 mask) {
  const bool brain = i.type.kind == Kind::brain;
  const u32 elements = i.type.elements;
  const auto source = [&](int k, u32 lane, u32 element) {
    const Operand& o = i.from[static_cast<std::size_t>(k < i.from_count ? k : 0)];
    const u32 both = o.bytes == 4 ? w.in<u32>(o)[lane] : w.in<u16>(o)[lane];
    return static_cast<u16>(both >> (16 * element));
  };
  each_lane(mask, [&](u32 l) {
    u32 out = 0;
    for (u32 e = 0; e < elements; ++e) {
      u16 result = source(0, l, e);
      if (i.mode == negative) {
        result ^= 0x8000;
      } else if (i.mode == absolute) {
        result &= 0x7fff;
      } else {
        const auto wide = [&](int k) -> double { return brain ? from_brain(source(k, l, e)) : from_half(source(k, l, e)); };
        double x = apply(i.mode, wide(0), wide(1), wide(2));
        if (i.saturate) x = x > 0 ? std::min(x, 1.0) : 0;
        if (i.mode2 != 0 && x < 0) x = 0;  // .relu
        result = brain ? to_brain(x, i.rounding) : to_half(x, i.rounding);
      }
      out |= u32{result} << (16 * e);
    }
    if (elements == 2)
      w.out<u32>(i.to[0])[l] = out;
    else
      w.out<u16>(i.to[0])[l] = static_cast<u16>(out);
  });
}

}  // namespace

bool decode_halves(Draft& d) {
  const Type t = d.type();
  if (t.kind != Kind::half && t.kind != Kind::brain) return false;
  struct Named {
    const char* name;
    Op op;
    int sources;
  };
  constexpr Named kAll[] = {{"add", add, 2},  {"sub", subtract, 2}, {"mul", multiply, 2}, {"fma", multiply_add, 3}, {"min", least, 2},
                            {"max", most, 2}, {"neg", negative, 1}, {"abs", absolute, 1}, {"ex2", power_of_two, 1}, {"tanh", tangent, 1}};
  for (const Named& one : kAll) {
    if (d.name != one.name) continue;
    if (d.is("NaN") || d.is("xorsign")) return false;
    d.instruction.mode = one.op, d.instruction.mode2 = d.is("relu");
    d.plain(&run, one.sources);
    return true;
  }
  return false;
}

}  // namespace ptx
