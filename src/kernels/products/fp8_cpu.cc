#include "kernels/products/fp8.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/fp8_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "kernels/has_cuda.h"
#include "kernels/storage_inl.h"
#include "tensor/flop_count.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels {
namespace HWY_NAMESPACE {

// Returns the bits, as bf16, of the largest magnitude of n numbers. A NaN counts as larger than infinity.
HWY_ATTR u16 largest_bits(const BFloat16* x, i64 n) {
  const hn::ScalableTag<u16> d;
  const auto lanes = static_cast<i64>(hn::Lanes(d));
  const auto* bits = reinterpret_cast<const u16*>(x);
  auto most = hn::Zero(d);
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) most = hn::Max(most, hn::And(hn::LoadU(d, bits + i), hn::Set(d, u16{0x7fff})));
  HWY_ALIGN u16 of_lanes[HWY_LANES(u16)];
  hn::Store(most, d, of_lanes);
  u16 largest = *std::max_element(of_lanes, of_lanes + lanes);
  for (; i < n; ++i) largest = std::max<u16>(largest, bits[i] & 0x7fff);
  return largest;
}

// Rounds n numbers to the format with the scale 2^exponent, as fp8_code() does. Numbers are compared and rounded without being scaled: the
// limits of the format are scaled instead.
HWY_ATTR void round_values(Fp8 format, int exponent, const BFloat16* x, i64 n, BFloat16* rounded) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> b;
  const int dropped = 23 - fp8_fraction_bits(format), steps = fp8_fraction_bits(format) - fp8_least_exponent(format) + exponent;
  const auto half = hn::Set(b, (1u << (dropped - 1)) - 1), kept = hn::Set(b, ~((1u << dropped) - 1)), one = hn::Set(b, 1u);
  const auto most = hn::Set(b, std::bit_cast<u32>(fp8_largest(format)) - (static_cast<u32>(exponent) << 23));
  const auto least = hn::Set(b, static_cast<u32>(fp8_least_exponent(format) - exponent + 127) << 23);
  const auto infinity = hn::Set(b, 0x7f800000u), nan = hn::Set(b, 0x7fc00000u), sign = hn::Set(b, 0x80000000u);
  const auto up = hn::Set(d, power_of_two(steps)), down = hn::Set(d, power_of_two(-steps)), whole = hn::Set(d, 0x1p23F);
  const auto lanes = static_cast<i64>(hn::Lanes(d));
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::BitCast(b, load(d, x + i)), magnitude = hn::AndNot(sign, bits);
    // A shift by a number that is the same in all lanes keeps bit `dropped`, which decides ties.
    const auto odd = hn::And(hn::ShiftRightSame(magnitude, dropped), one);
    const auto normal = hn::Min(most, hn::And(hn::Add(magnitude, hn::Add(half, odd)), kept));
    const auto small = hn::Mul(hn::Sub(hn::Add(hn::Mul(hn::BitCast(d, magnitude), up), whole), whole), down);
    auto result = hn::IfThenElse(hn::Lt(magnitude, least), hn::BitCast(b, small), normal);
    result = hn::IfThenElse(hn::Lt(magnitude, infinity), result, nan);
    store(d, hn::BitCast(d, hn::Or(result, hn::And(bits, sign))), rounded + i);
  }
  for (; i < n; ++i)
    rounded[i] = narrow<BFloat16>(fp8_value(format, fp8_code(format, widen(x[i]) * power_of_two(exponent))) * power_of_two(-exponent));
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels {
namespace {

HWY_EXPORT(largest_bits);
HWY_EXPORT(round_values);

constexpr i64 kGrain = 1 << 14;  // the number of elements of a task

bool has_no_gaps(const Tensor& x) { return x.is_contiguous() || (x.rank() == 2 && x.transpose(0, 1).is_contiguous()); }

void check(const Tensor& addend, const Fp8Operand& a, const Fp8Operand& b, const Tensor& out, const Tensor& workspace) {
  require(a.x.dtype() == DType::bf16 && b.x.dtype() == DType::bf16 && has_no_gaps(a.x) && has_no_gaps(b.x),
          "[fp8_matmul] expected two bf16 matrices, each contiguous or the transpose of a contiguous one");
  require(a.format == Fp8::e4m3 || b.format == Fp8::e4m3, "[fp8_matmul] expected at least one operand in e4m3");
  require(out.is_contiguous() && (out.dtype() == DType::bf16 || (out.dtype() == DType::f32 && !addend.defined())),
          "[fp8_matmul] expected a contiguous result in bf16, or in f32 without an addend");
  require(a.x.size(1) == b.x.size(0) && out.size(0) == a.x.size(0) && out.size(1) == b.x.size(1),
          "[fp8_matmul] expected matrices [M, K], [K, N] and [M, N]");
  require(workspace.bytes() >= fp8_matmul_workspace_bytes(out.size(0), out.size(1), a.x.size(1), out.dtype()),
          "[fp8_matmul] expected a workspace of at least fp8_matmul_workspace_bytes()");
}

// Returns whether cuBLASLt multiplies the codes: it needs a GPU and extents that are multiples of 16 (cuBLAS library, section
// "cublasLtMatmul").
bool multiplies_codes(i64 m, i64 n, i64 k) { return Stream::current().device.works_as_cuda() && m % 16 == 0 && n % 16 == 0 && k % 16 == 0; }

}  // namespace

i64 fp8_matmul_workspace_bytes(i64 m, i64 n, i64 k, DType out) {
  const i64 each = multiplies_codes(m, n, k) ? 1 : size_of(DType::bf16);
  return round_up(m * k * each, kAllocationAlignment) + round_up(k * n * each, kAllocationAlignment) + 2 * kFp8ScratchBytes +
         matmul_workspace_bytes(m, n, k, DType::bf16, out);
}

void fp8_round(const Fp8Operand& in, const Tensor& rounded, const Tensor& scratch) {
  const Tensor& x = in.x;
  require(x.dtype() == DType::bf16 && rounded.dtype() == DType::bf16 && x.shape() == rounded.shape() && has_no_gaps(x) &&
              x.is_contiguous() == rounded.is_contiguous(),
          "[fp8_round] expected two bf16 tensors of the same shape and strides, without gaps");
  if (rounded.device().is_meta() || x.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(rounded, fp8_round(in, rounded, scratch));
  const auto* from = x.data<BFloat16>();
  auto* to = rounded.data<BFloat16>();
  std::atomic<u16> largest = 0;
  Stream::current().for_ranges(x.elems(), kGrain, [&](i64 begin, i64 end) {
    const u16 here = HWY_DYNAMIC_DISPATCH(largest_bits)(from + begin, end - begin);
    for (u16 before = largest; before < here && !largest.compare_exchange_weak(before, here);) {
    }
  });
  const int exponent = fp8_scale_exponent(in.format, static_cast<u32>(largest.load()) << 16);
  Stream::current().for_ranges(x.elems(), kGrain, [&](i64 begin, i64 end) {
    HWY_DYNAMIC_DISPATCH(round_values)(in.format, exponent, from + begin, end - begin, to + begin);
  });
}

void fp8_matmul(const Tensor& addend, const Fp8Operand& a, const Fp8Operand& b, const Tensor& bias, const Tensor& out,
                const Tensor& workspace) {
  check(addend, a, b, out, workspace);
  const i64 m = out.size(0), n = out.size(1), k = a.x.size(1);
  if (out.elems() > 0 && multiplies_codes(m, n, k)) {
    count_flops(2.0 * static_cast<double>(m * n) * static_cast<double>(k));
    if (out.device().is_meta()) return;
    SPILLWAY_RETURN_IF_CUDA(out, fp8_matmul(addend, a, b, bias, out, workspace));
  }
  i64 used = 0;
  const auto take = [&](i64 bytes) {
    const Tensor part = workspace.slice(0, used, used + bytes);
    used += round_up(bytes, kAllocationAlignment);
    return part;
  };
  const auto rounded = [&](const Fp8Operand& operand) {
    const Tensor values = take(operand.x.bytes()).reinterpret({operand.x.elems()}, DType::bf16);
    const Tensor to = operand.x.is_contiguous() ? values.reshape(operand.x.shape())
                                                : values.reshape({operand.x.size(1), operand.x.size(0)}).transpose(0, 1);
    fp8_round(operand, to, take(kFp8ScratchBytes));
    return to;
  };
  const Tensor left = rounded(a), right = rounded(b), rest = workspace.slice(0, used, workspace.elems());
  addend.defined() ? matmul_onto(addend, left, right, bias, out, rest) : matmul(left, right, bias, out, rest);
}

}  // namespace spillway::kernels
#endif
