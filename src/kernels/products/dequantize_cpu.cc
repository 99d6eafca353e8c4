#include "kernels/products/quantized.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/dequantize_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;

template <class T>
HWY_INLINE void put(FloatTag d, Floats v, T* to) {
  store(d, v, to);
}
HWY_INLINE void put(FloatTag d, Floats v, double* to) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<double>(lanes[i]);
}

template <class T>
HWY_ATTR void int8_block(const u8* code, float scale, T* to) {
  const FloatTag d;
  const hn::Rebind<i32, FloatTag> whole;
  const hn::Rebind<i8, FloatTag> bytes;
  const Floats s = hn::Set(d, scale);
  for (i64 i = 0; i < kScaledValues; i += lanes_of<float>()) {
    const auto codes = hn::LoadU(bytes, reinterpret_cast<const i8*>(code + i));
    put(d, hn::Mul(hn::ConvertTo(d, hn::PromoteTo(whole, codes)), s), to + i);
  }
}

// The number of lanes of a table vector, and how many such vectors hold the 16 levels of nf4.
constexpr i64 kNf4Lanes = std::min<i64>(HWY_LANES(float), 16), kNf4Tables = 16 / kNf4Lanes;

HWY_INLINE Floats looked_up(const Floats (&tables)[kNf4Tables], hn::Vec<hn::Rebind<u32, FloatTag>> code) {
  const FloatTag d;
  const hn::Rebind<i32, FloatTag> whole;
  const hn::Rebind<u32, FloatTag> bits;
  const auto lane = hn::BitCast(whole, hn::And(code, hn::Set(bits, static_cast<u32>(kNf4Lanes - 1))));
  const auto indices = hn::IndicesFromVec(d, lane);
  Floats result = hn::TableLookupLanes(tables[0], indices);
  for (i64 t = 1; t < kNf4Tables; ++t) {
    const auto beyond = hn::Gt(hn::BitCast(whole, code), hn::Set(whole, static_cast<i32>(t * kNf4Lanes - 1)));
    result = hn::IfThenElse(hn::RebindMask(d, beyond), hn::TableLookupLanes(tables[t], indices), result);
  }
  return result;
}

template <class T>
HWY_ATTR void nf4_block(const u8* code, float scale, T* to) {
  const FloatTag d;
  const hn::Rebind<u32, FloatTag> bits;
  const hn::Rebind<u8, FloatTag> bytes;
  Floats tables[kNf4Tables];
  for (i64 t = 0; t < kNf4Tables; ++t) tables[t] = hn::Mul(hn::LoadU(d, kNf4Levels.data() + t * kNf4Lanes), hn::Set(d, scale));
  constexpr i64 kHalf = kScaledValues / 2;
  for (i64 i = 0; i < kHalf; i += lanes_of<float>()) {
    const auto both = hn::PromoteTo(bits, hn::LoadU(bytes, code + i));
    put(d, looked_up(tables, hn::And(both, hn::Set(bits, 15u))), to + i);
    put(d, looked_up(tables, hn::ShiftRight<4>(both)), to + kHalf + i);
  }
}

template <class T>
HWY_ATTR void bf16_block(const u8* from, T* to) {
  const FloatTag d;
  const auto* values = reinterpret_cast<const BFloat16*>(from);
  for (i64 i = 0; i < kScaledValues; i += lanes_of<float>()) put(d, load(d, values + i), to + i);
}

template <class T>
HWY_ATTR void units(WeightFormat format, const u8* from, i64 count, T* to) {
  for (i64 u = 0; u < count; ++u, from += unit_bytes(format)) {
    float scales[2];
    std::memcpy(scales, from, sizeof scales);
    for (i64 b = 0; b < 2; ++b, to += kScaledValues) {
      if (format == WeightFormat::int8) {
        int8_block(from + sizeof scales + b * kScaledValues, scales[b], to);
      } else if (format == WeightFormat::nf4) {
        nf4_block(from + sizeof scales + b * kScaledValues / 2, scales[b], to);
      } else {
        bf16_block(from + 2 * b * kScaledValues, to);
      }
    }
  }
}

SPILLWAY_FOR_TYPES(units, units);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {

SPILLWAY_EXPORT_TYPES(units);

void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out) {
  require(format != WeightFormat::plain && stored.is_contiguous() && out.is_contiguous() &&
              stored.bytes() == quantized_bytes(format, out.elems()),
          "[dequantize] expected contiguous tensors, and exactly as many quantized bytes as the result's elements take");
  if (out.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(out, dequantize(format, stored, out));
  for_dtype("dequantize", out.dtype(), [&]<class T>(T) {
    constexpr i64 kGrain = 64;  // the number of quantized units (two blocks of values each) in a task
    const auto* from = reinterpret_cast<const u8*>(stored.raw());
    T* const to = out.data<T>();
    const i64 whole = out.elems() / kUnitValues, rest = out.elems() % kUnitValues, each = unit_bytes(format);
    Stream::current().for_ranges(whole, kGrain, [=](i64 begin, i64 end) {
      SPILLWAY_DISPATCH_TYPE(T, units, format, from + begin * each, end - begin, to + begin * kUnitValues);
    });
    if (rest == 0) return;
    T last[kUnitValues];
    SPILLWAY_DISPATCH_TYPE(T, units, format, from + whole * each, 1, last);
    std::copy_n(last, rest, to + whole * kUnitValues);
  });
}

}  // namespace spillway::kernels
#endif
