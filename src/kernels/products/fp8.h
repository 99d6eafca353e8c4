// Matrix products of bf16 matrices that are first rounded to 8-bit floating point (fp8), as NVIDIA's Transformer Engine computes them with
// the recipe Float8CurrentScaling and NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES=1. Each operand gets one scale, which follows from its
// largest magnitude alone: the largest power of two that keeps this magnitude within the format. So a product depends only on its operands,
// and there is no history of earlier magnitudes. Because scales are powers of two, a rounded value divided by its scale is exact in bf16. A
// CPU therefore multiplies the rounded values as bf16 (matmul.h). So does a GPU if an extent is no multiple of 16. All other products are
// computed on a GPU by cuBLASLt from the 8-bit codes, with the same operands, sums in fp32, and one rounding of the result.
#pragma once
#include <algorithm>
#include <bit>

#include "kernels/products/matmul.h"

namespace spillway::kernels {

/// The two formats of Micikevicius et al., arXiv:2209.05433. e4m3 has 3 bits of fraction and magnitudes up to 448, e5m2 has 2 bits and
/// magnitudes up to 57344. Values between 0 and the smallest normal number, 2^-6 or 2^-14, are evenly spaced, as in IEEE 754.
enum class Fp8 : u8 { e4m3, e5m2 };

constexpr int fp8_fraction_bits(Fp8 format) { return format == Fp8::e4m3 ? 3 : 2; }
constexpr int fp8_least_exponent(Fp8 format) { return format == Fp8::e4m3 ? -6 : -14; }
constexpr float fp8_largest(Fp8 format) { return format == Fp8::e4m3 ? 448.F : 57344.F; }

/// Returns 2^exponent, for exponents from -126 to 127.
constexpr float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<u32>(exponent + 127) << 23); }

/// Returns the exponent of the scale for values whose largest magnitude has the bits `largest` as fp32. It is 0, as in Transformer Engine,
/// if all values are zero or if a value is not finite. It is limited so that the quotient of the smallest code and the scale is not
/// denormal.
constexpr int fp8_scale_exponent(Fp8 format, u32 largest) {
  constexpr u32 kInfinity = 0x7f800000u, kFraction = 0x7fffffu, kSevenQuarters = 0x600000u;  // fraction of 1.75, as of 448 and 57344
  if (largest == 0 || largest >= kInfinity) return 0;
  const int exponent = static_cast<int>(largest >> 23) - 127, of_largest = format == Fp8::e4m3 ? 8 : 15;
  const int most = 126 + fp8_least_exponent(format) - fp8_fraction_bits(format);
  return std::min(most, of_largest - exponent - ((largest & kFraction) > kSevenQuarters ? 1 : 0));
}

/// Returns the code of the value nearest to x, ties to even. Magnitudes beyond the largest value become the largest value. NaN and
/// infinities become NaN, so that an overflow is seen in the result.
constexpr u8 fp8_code(Fp8 format, float x) {
  const int dropped = 23 - fp8_fraction_bits(format), least = fp8_least_exponent(format);
  const u32 bits = std::bit_cast<u32>(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x7f800000u) return static_cast<u8>(sign | 0x7fu);
  const u32 most = std::bit_cast<u32>(fp8_largest(format)), unit = 1u << dropped;
  const u32 smallest_normal = static_cast<u32>(least + 127) << 23;
  if (magnitude < smallest_normal) {
    // An fp32 number in [2^23, 2^24) has no fraction, so the addition rounds to a whole number of steps.
    const float steps = std::bit_cast<float>(magnitude) * power_of_two(fp8_fraction_bits(format) - least);
    return static_cast<u8>(sign | (std::bit_cast<u32>(steps + 0x1p23f) & 0xffu));
  }
  const u32 rounded = std::min(most, (magnitude + unit / 2 - 1 + ((magnitude >> dropped) & 1u)) & ~(unit - 1));
  return static_cast<u8>(sign | ((rounded - (smallest_normal - (1u << 23))) >> dropped));
}

/// Returns the value of a code. The codes that stand for infinities in e5m2, which fp8_code() never returns, give NaN.
constexpr float fp8_value(Fp8 format, u8 code) {
  const int fraction_bits = fp8_fraction_bits(format), least = fp8_least_exponent(format);
  const u32 magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  const u32 largest = format == Fp8::e4m3 ? 0x7eu : 0x7bu;
  if (magnitude > largest) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >> fraction_bits == 0) {
    const float value = static_cast<float>(magnitude) * power_of_two(least - fraction_bits);
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << (23 - fraction_bits)) + (static_cast<u32>(least + 126) << 23)));
}

/// A bf16 matrix and the format to which a product rounds it.
struct Fp8Operand {
  Tensor x;
  Fp8 format;
};

/// Returns the bytes of workspace that fp8_matmul() needs on the current stream's device, or on the one that a meta device imitates.
i64 fp8_matmul_workspace_bytes(i64 m, i64 n, i64 k, DType out);

/// Computes out[M, N] = (addend[M, N] +) a[M, K] b[K, N] (+ bias[N]) with both operands rounded as described above. a and b are contiguous
/// or transposes of contiguous matrices, and not both in e5m2, which cuBLASLt does not multiply. out is contiguous, bf16 or f32. addend and
/// bias may be undefined; otherwise they are contiguous and bf16, as is out. On a GPU the addend is added before the result is rounded. A
/// CPU rounds the product and then the sum, as matmul_onto() does. The workspace is uint8 and has at least fp8_matmul_workspace_bytes().
/// Throws Error(io) on a GPU if cuBLASLt has no algorithm for the product.
void fp8_matmul(const Tensor& addend, const Fp8Operand& a, const Fp8Operand& b, const Tensor& bias, const Tensor& out,
                const Tensor& workspace);

/// Returns whether tensor cores of GPUs with this compute capability (89 for 8.9) multiply fp8: those of Ada, of Hopper and later ones.
constexpr bool has_fp8(int compute_capability) { return compute_capability >= 89; }

/// Rounds x to the format and stores the rounded values, divided by their scale, as bf16. x and `rounded` have the same strides, without
/// gaps. `scratch` is uint8 and has at least kFp8ScratchBytes.
void fp8_round(const Fp8Operand& x, const Tensor& rounded, const Tensor& scratch);

/// The bytes in which a GPU keeps the largest magnitudes of parts of one operand, and one divided by the operand's scale.
constexpr i64 kFp8ScratchBytes = 4096;

namespace cuda {
/// Computes a product from 8-bit codes. All extents are multiples of 16.
decltype(kernels::fp8_matmul) fp8_matmul;
decltype(kernels::fp8_round) fp8_round;
}  // namespace cuda

}  // namespace spillway::kernels
