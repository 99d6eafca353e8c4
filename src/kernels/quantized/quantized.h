// Weights kept in fewer bytes than they are multiplied in, blockwise: 64 values in the tensor's order share one f32 scale. int8: whole
// numbers from -127 to 127 times absmax / 127. nf4: 16 levels times absmax, the NF4 of Dettmers et al., arXiv:2305.14314, appendix E. bf16:
// of products in a wider type. Two blocks make a unit, scales first and codes behind, so that units are whole words of any type: int8 136
// bytes, nf4 72. A block of nf4 has value j of its first half in the low four bits of byte j, and value j of its second half in the high
// ones. Little-endian. What the last unit lacks in values is zero.
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace spillway::kernels {

enum class WeightFormat : u8 {
  plain,  // the values themselves, in the type that they are multiplied in
  bf16,
  int8,
  nf4,
};

/// Values of a block, and of a unit.
constexpr i64 kScaledValues = 64, kUnitValues = 2 * kScaledValues;

constexpr i64 unit_bytes(WeightFormat format) {
  constexpr i64 kScales = 2 * static_cast<i64>(sizeof(float));
  return format == WeightFormat::int8 ? kScales + kUnitValues : format == WeightFormat::nf4 ? kScales + kUnitValues / 2 : 2 * kUnitValues;
}

/// Bytes of so many values in a format that is not plain; a multiple of 8.
constexpr i64 quantized_bytes(WeightFormat format, i64 elems) { return ceil_div(elems, kUnitValues) * unit_bytes(format); }

/// The levels of nf4, ascending.
extern const std::array<float, 16> kNf4Levels;

/// One unit of up to kUnitValues values, each to the nearest code (int8: halves to even; nf4: to the upper of two as near). A block with a
/// value that is not finite becomes NaN. `unit`: unit_bytes().
void quantize(WeightFormat format, std::span<const float> values, std::byte* unit);

/// out = what `stored` stands for: scale times level in f32, rounded once to out's type (f32, f64, bf16, f16). `stored`: quantized_bytes()
/// of out's elements, in words of any type; both contiguous.
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);

namespace cuda {
void dequantize(WeightFormat format, const Tensor& stored, const Tensor& out);
}  // namespace cuda

}  // namespace spillway::kernels
