// Tests matrix products followed by gelu or its gradient. On a GPU they run as one kernel if cuBLASLt has it, and as two otherwise. Either
// way results are near fp64. On a CPU they are bitwise equal to those of the two separate operations.
#include <cstdlib>

#include "kernels/elementwise/elementwise.h"
#include "kernels/products/matmul.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"

namespace spillway::matmul_gelu_cuda_test {
namespace {

struct Problem {
  Tensor a, b, bias, kept;  // the inputs; `kept` holds the points at which the gradient of gelu is taken
  Problem(i64 m, i64 n, i64 k, DType dtype)
      : a(test::random({m, k}, dtype, 1)),
        b(test::random({k, n}, dtype, 2, 1 / std::sqrt(static_cast<double>(k)))),
        bias(test::random({n}, dtype, 3)),
        kept(test::random({m, n}, dtype, 4, 2)) {}
};

struct Results {
  Tensor kept, gelu, gradient;
};

Results run(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept) {
  const Shape shape{a.size(0), b.size(1)};
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(shape[0], shape[1], a.size(1), a.dtype())}, DType::uint8);
  Results r{empty(shape, a.dtype()), empty(shape, a.dtype()), empty(shape, a.dtype())};
  kernels::matmul_gelu(a, b, bias, r.kept, r.gelu, workspace);
  kernels::matmul_gelu_gradient(a, b, kept, r.gradient, workspace);
  return r;
}

// Computes product and gelu one after the other, as both devices do if there is no combined kernel.
Results one_by_one(const Problem& p) {
  const Shape shape{p.a.size(0), p.b.size(1)};
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(shape[0], shape[1], p.a.size(1), p.a.dtype())}, DType::uint8);
  Results r{empty(shape, p.a.dtype()), empty(shape, p.a.dtype()), empty(shape, p.a.dtype())};
  kernels::matmul(p.a, p.b, p.bias, r.kept, workspace);
  kernels::unary(kernels::Unary::gelu_tanh, r.kept, r.gelu);
  kernels::matmul(p.a, p.b, {}, r.gradient, workspace);
  kernels::unary_gradient(kernels::Unary::gelu_tanh, p.kept, r.gradient, r.gradient);
  return r;
}

class MatmulGeluTwins : public test::GpuTest {
 protected:
  void check(i64 m, i64 n, i64 k, DType dtype) {
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " + std::string(to_string(dtype)));
    const Problem p(m, n, k, dtype);
    const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
    const Results exact = run(wide(p.a), wide(p.b), wide(p.bias), wide(p.kept));
    const Results there = gpu().run([&] { return run(gpu()(p.a), gpu()(p.b), gpu()(p.bias), gpu()(p.kept)); });
    // Sums have k products of numbers of sizes 1 / sqrt(k) and 1. The slope of gelu is at
    // most 1.13, and if the argument of gelu was rounded, the rounding error counts twice.
    const double u = test::half_ulp(dtype), sums = 4 * std::sqrt(static_cast<double>(k)) * 0x1p-23;
    test::expect_near(gpu().host(there.kept), exact.kept, u, sums, "kept");
    test::expect_near(gpu().host(there.gelu), exact.gelu, 2.5 * u, 2 * sums + 2 * u, "gelu");
    test::expect_near(gpu().host(there.gradient), exact.gradient, 2.5 * u, 2 * sums, "gradient");
  }
};

constexpr DType kHalves[] = {DType::bf16, DType::f16};

TEST_F(MatmulGeluTwins, NearFp64AtAnySize) {
  constexpr i64 kSizes[][3] = {{1, 8, 1}, {7, 64, 24}, {5, 100, 33}, {3, 7, 70}, {33, 136, 40}};
  for (const auto& [m, n, k] : kSizes) {
    for (const DType dtype : kHalves) check(m, n, k, dtype);
    check(m, n, k, DType::f32);
  }
}

// If cuBLASLt has no combined kernel, two kernels give the result. Plans are cached, so each case has other shapes.
TEST_F(MatmulGeluTwins, WhereTheLibraryCannotTheyAreTwoKernels) {
  if (!std::getenv("SPILLWAY_EMULATED_GPUS")) GTEST_SKIP() << "needs emulated GPUs";
  i64 k = 61;
  for (const char* cannot : {"epilogue", "bias", "all"}) {
    ::setenv("SPILLWAY_EMULATED_BLAS", cannot, 1);
    for (const DType dtype : kHalves) check(6, 48, k, dtype);
    ++k;
  }
  ::unsetenv("SPILLWAY_EMULATED_BLAS");
}

TEST_F(MatmulGeluTwins, OneKernelEach) {
  const Problem p(6, 48, 20, DType::bf16), odd(8, 50, 20, DType::bf16);
  const auto launches = [&](const Problem& q) {
    const Tensor a = gpu()(q.a), b = gpu()(q.b), bias = gpu()(q.bias), kept = gpu()(q.kept);
    const test::GpuLog log;
    gpu().run([&] { return run(a, b, bias, kept); });
    return log.kept() ? log.launches() : -1;
  };
  if (launches(p) < 0) GTEST_SKIP() << "a GPU keeps no list of its kernels";
  EXPECT_EQ(launches(p), 2);
  EXPECT_EQ(launches(odd), 4) << "rows of 100 bytes: the library wants multiples of 16";
}

TEST(MatmulGelu, HasTheBitsOfItsPartsOnACpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Problem p(9, 48, 300, dtype);
    const Results got = run(p.a, p.b, p.bias, p.kept), want = one_by_one(p);
    EXPECT_TRUE(test::same_bits(got.kept, want.kept));
    EXPECT_TRUE(test::same_bits(got.gelu, want.gelu));
    EXPECT_TRUE(test::same_bits(got.gradient, want.gradient));
  }
}

}  // namespace
}  // namespace spillway::matmul_gelu_cuda_test
