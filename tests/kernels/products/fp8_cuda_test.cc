// Compares fp8 on a GPU with the CPU: rounded values bit by bit, and products with fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's
// code and cuBLASLt run on the CPU.
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "kernels/products/fp8.h"
#include "tests/kernels/products/support_matmul.h"
#include "tests/support/gpu.h"

namespace spillway::fp8_cuda_test {
namespace {

using kernels::Fp8;

// Sums of fp8 products on Hopper's tensor cores keep about 14 bits until they are added to fp32 sums (DeepSeek-V3, arXiv:2412.19437,
// section 3.5.2). The emulated library adds in fp32.
double error_of_an_addition() { return std::getenv("SPILLWAY_EMULATED_GPUS") ? test::half_ulp(DType::f32) : 0x1p-13; }

class Fp8Twins : public test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !kernels::has_fp8(query_gpus().gpus[0].compute_capability)) GTEST_SKIP() << "this GPU has no fp8";
  }
  Tensor rounded(Fp8 format, const Tensor& x) {
    return gpu().host(gpu().run([&] {
      const Tensor to = empty(x.shape(), DType::bf16);
      kernels::fp8_round({gpu()(x), format}, to, empty({kernels::kFp8ScratchBytes}, DType::uint8));
      return to;
    }));
  }
  Tensor multiplied(const Tensor& addend, Fp8 of_a, Fp8 of_b, const Tensor& a, const Tensor& b, const Tensor& bias, DType out) {
    return gpu().host(gpu().run([&] {
      const Tensor y = empty({a.size(0), b.size(1)}, out);
      const i64 bytes = kernels::fp8_matmul_workspace_bytes(a.size(0), b.size(1), a.size(1), out);
      kernels::fp8_matmul(gpu()(addend), {a, of_a}, {b, of_b}, gpu()(bias), y, empty({bytes}, DType::uint8));
      return y;
    }));
  }
};

Tensor rounded_on_cpu(Fp8 format, const Tensor& x) {
  const Tensor to = empty(x.shape(), DType::bf16);
  kernels::fp8_round({x, format}, to, empty({kernels::kFp8ScratchBytes}, DType::uint8));
  return to;
}

TEST_F(Fp8Twins, RoundAsTheCpuDoes) {
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    for (const i64 count : {i64{1}, i64{7}, i64{8}, i64{2049}, i64{300000}}) {
      for (const double size : {1e-30, 0.02, 300.}) {
        const Tensor x = test::random({count}, DType::bf16, 5, size);
        EXPECT_TRUE(test::same_bits(rounded(format, x), rounded_on_cpu(format, x))) << count << " " << size;
      }
    }
  }
}

// The extents of the first shapes are multiples of 16, so that cuBLASLt multiplies codes. The others multiply rounded bf16 numbers.
// More elements than all thread blocks look at together in one go. The last one decides the scale.
TEST_F(Fp8Twins, FindTheLargestMagnitudeAnywhere) {
  constexpr i64 kCount = 1'100'000;
  const Tensor x = test::random({kCount}, DType::bf16, 5);
  x.data<BFloat16>()[kCount - 1] = narrow<BFloat16>(-1000);
  EXPECT_TRUE(test::same_bits(rounded(Fp8::e4m3, x), rounded_on_cpu(Fp8::e4m3, x)));
  x.data<BFloat16>()[kCount - 1] = narrow<BFloat16>(0);
  x.data<BFloat16>()[600'000] = narrow<BFloat16>(1000);
  EXPECT_TRUE(test::same_bits(rounded(Fp8::e4m3, x), rounded_on_cpu(Fp8::e4m3, x)));
}

TEST_F(Fp8Twins, MultiplyWhatTheCpuMultiplies) {
  for (const test::Extents& e : {test::Extents{16, 16, 16}, {48, 80, 112}, {32, 16, 1040}, {17, 33, 40}, {16, 16, 15}}) {
    for (int layout = 0; layout < 4; ++layout) {
      const bool a_flip = layout & 1, b_flip = layout & 2;
      const Tensor a = test::whole_of(e.m, e.k, a_flip, false, DType::bf16, 1), b = test::whole_of(e.k, e.n, b_flip, false, DType::bf16, 2);
      const Tensor on_gpu_a = test::view_in(gpu()(a), e.m, e.k, a_flip), on_gpu_b = test::view_in(gpu()(b), e.k, e.n, b_flip);
      const Tensor bias = test::random({e.n}, DType::bf16, 3), addend = test::random({e.m, e.n}, DType::bf16, 4);
      for (const auto& [of_a, of_b] : {std::pair(Fp8::e4m3, Fp8::e4m3), {Fp8::e5m2, Fp8::e4m3}, {Fp8::e4m3, Fp8::e5m2}}) {
        SCOPED_TRACE(test::to_string(e, {DType::bf16, DType::bf16}) + ", layout " + std::to_string(layout));
        const Tensor left = test::view_in(rounded_on_cpu(of_a, a), e.m, e.k, a_flip);
        const Tensor right = test::view_in(rounded_on_cpu(of_b, b), e.k, e.n, b_flip);
        const double eps = error_of_an_addition();
        test::expect_product(left, right, {}, multiplied({}, of_a, of_b, on_gpu_a, on_gpu_b, {}, DType::f32), eps);
        test::expect_product(left, right, bias, multiplied({}, of_a, of_b, on_gpu_a, on_gpu_b, bias, DType::bf16), eps);
        const bool rounds_once = e.m % 16 == 0 && e.n % 16 == 0 && e.k % 16 == 0;
        if (rounds_once)
          test::expect_product(left, right, bias, multiplied(addend, of_a, of_b, on_gpu_a, on_gpu_b, bias, DType::bf16), eps, addend);
      }
    }
  }
}

TEST_F(Fp8Twins, AnOverflowIsSeen) {
  const Tensor a = test::random({32, 32}, DType::bf16, 1), b = test::random({32, 32}, DType::bf16, 2);
  a.data<BFloat16>()[5] = narrow<BFloat16>(std::numeric_limits<float>::infinity());
  const Tensor y = multiplied({}, Fp8::e4m3, Fp8::e4m3, gpu()(a), gpu()(b), {}, DType::f32);
  for (i64 i = 0; i < y.elems(); ++i) EXPECT_EQ(std::isnan(test::at(y, i)), i < 32) << i;
}

}  // namespace
}  // namespace spillway::fp8_cuda_test
