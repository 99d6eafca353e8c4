// Weights stored in fewer bytes than they are multiplied in, in blocks: 64 values in the tensor's order share one f32 scale. int8: whole
// numbers from -127 to 127 times absmax / 127. nf4: 16 levels times absmax, the NF4 of Dettmers et al., arXiv:2305.14314, appendix E. bf16:
// plain bf16 for products in a wider dtype. Two blocks form a unit, first the scales and then the codes, so that units are whole words of
// any dtype: 136 bytes for int8, 72 for nf4. An nf4 block stores value j of its first half in the low four bits of byte j and value j of
// its second half in the high four bits. Byte order is little-endian. Missing values of the last unit are zero.
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace spillway::kernels {

enum class WeightFormat : u8 {
  plain,  // the values themselves, in the dtype in which they are multiplied
  bf16,
  int8,
  nf4,
};

/// Values in a block, and in a unit.
constexpr i64 kScaledValues = 64, kUnitValues = 2 * kScaledValues;

constexpr i64 unit_bytes(WeightFormat format) {
  constexpr i64 kScales = 2 * static_cast<i64>(sizeof(float));
  return format == WeightFormat::int8 ? kScales + kUnitValues : format == WeightFormat::nf4 ? kScales + kUnitValues / 2 : 2 * kUnitValues;
}

/// Returns the bytes that so many values take in a format that is not plain; a multiple of 8.
constexpr i64 quantized_bytes(WeightFormat format, i64 elems) { return ceil_div(elems, kUnitValues) * unit_bytes(format); }

/// The 16 levels of nf4, ascending.
extern const std::array<float, 16> kNf4Levels;

/// Quantizes up to kUnitValues values into one unit of unit_bytes(), each to the nearest code (int8: halves to even; nf4: to the upper of
/// two equally near levels). A block with a value that is not finite becomes NaN.
void quantize(WeightFormat format, std::span<const float> values, std::byte* unit);

/// Writes the values that `stored` represents: scale times level in f32, rounded once to out's dtype (f32, f64, bf16, f16). `stored` has
/// quantized_bytes() of out's elements, in words of any dtype; both are contiguous.
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);

namespace cuda {
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);
}  // namespace cuda

}  // namespace spillway::kernels
