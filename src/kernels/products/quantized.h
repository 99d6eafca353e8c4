// Defines weight formats that take fewer bytes than the dtype in which weights are multiplied. int8 and nf4 are quantized in
// blocks: 64 values, in the order of the tensor, share one f32 scale, which follows from absmax, the largest magnitude in the
// block. int8 stores whole numbers from -127 to 127; a value is the number times absmax / 127. nf4 stores one of 16 levels, as in
// NF4 of Dettmers et al., arXiv:2305.14314, appendix E; a value is the level times absmax. bf16 stores plain bf16 for products in
// a wider dtype. Two blocks form a unit, first the two scales and then the codes, so that units are whole words of any dtype. A
// unit takes 136 bytes for int8 and 72 for nf4. An nf4 block stores value j of its first half in the low four bits of byte j, and
// value j of its second half in the high four bits. Byte order is little-endian. Missing values of the last unit are zero.
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace spillway::kernels {

enum class WeightFormat : u8 {
  plain,  // not compressed: values have the dtype in which they are multiplied
  bf16,
  int8,
  nf4,
};

/// The number of values in a block, and in a unit.
constexpr i64 kScaledValues = 64, kUnitValues = 2 * kScaledValues;

constexpr i64 unit_bytes(WeightFormat format) {
  constexpr i64 kScales = 2 * static_cast<i64>(sizeof(float));
  return format == WeightFormat::int8 ? kScales + kUnitValues : format == WeightFormat::nf4 ? kScales + kUnitValues / 2 : 2 * kUnitValues;
}

/// Returns how many bytes `elems` values take in `format`, which must not be plain. The result is a multiple of 8.
constexpr i64 quantized_bytes(WeightFormat format, i64 elems) { return ceil_div(elems, kUnitValues) * unit_bytes(format); }

/// The 16 levels of nf4, ascending.
extern const std::array<float, 16> kNf4Levels;

/// Quantizes up to kUnitValues values into one unit of unit_bytes(). Each value gets the nearest code. If two codes are equally near, int8
/// takes the even one and nf4 the upper level. If a value of a block is not finite, the whole block becomes NaN.
void quantize(WeightFormat format, std::span<const float> values, std::byte* unit);

/// Writes the values that `stored` represents: scale times code or level in f32, rounded once to out's dtype (f32, f64, bf16
/// or f16). `stored` has exactly quantized_bytes() of out's elements, in words of any dtype. Both tensors are contiguous.
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);

namespace cuda {
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);
}  // namespace cuda

}  // namespace spillway::kernels
