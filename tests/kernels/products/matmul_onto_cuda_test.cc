// Tests matrix products that are added to the output. On a GPU they run as one kernel if cuBLASLt has it, with one rounding. On a CPU they
// are bitwise equal to a product followed by a sum.
#include <cstdlib>

#include "kernels/accumulate.h"
#include "kernels/products/matmul.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"

namespace spillway::matmul_onto_cuda_test {
namespace {

struct Problem {
  Tensor addend, a, b, bias;
  Problem(i64 m, i64 n, i64 k, DType dtype, bool biased)
      : addend(test::random({m, n}, dtype, 4, 3)),
        a(test::random({m, k}, dtype, 1)),
        b(test::random({k, n}, dtype, 2, 1 / std::sqrt(static_cast<double>(k)))),
        bias(biased ? test::random({n}, dtype, 3) : Tensor()) {}
  template <class To>
  Problem(const Problem& p, const To& to) : addend(to(p.addend)), a(to(p.a)), b(to(p.b)), bias(p.bias.defined() ? to(p.bias) : Tensor()) {}
};

Tensor workspace_for(const Problem& p) {
  return empty({kernels::matmul_workspace_bytes(p.a.size(0), p.b.size(1), p.a.size(1), p.a.dtype())}, DType::uint8);
}

Tensor run(const Problem& p) {
  const Tensor out = empty(p.addend.shape(), p.a.dtype());
  kernels::matmul_onto(p.addend, p.a, p.b, p.bias, out, workspace_for(p));
  return out;
}

class MatmulOntoTwins : public test::GpuTest {
 protected:
  // Compares the result with fp64. `roundings` is the number of roundings to the narrow type that the device makes.
  void check(i64 m, i64 n, i64 k, DType dtype, bool biased, double roundings) {
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " + std::string(to_string(dtype)));
    const Problem p(m, n, k, dtype, biased);
    const Tensor exact = run(Problem(p, [](const Tensor& t) { return test::as(DType::f64, t); }));
    const Tensor there = gpu().run([&] { return run(Problem(p, [&](const Tensor& t) { return gpu()(t); })); });
    // Sums have k products of numbers of sizes 1 / sqrt(k) and 1. A product that is rounded before the sum errs by an ulp of itself.
    const double u = test::half_ulp(dtype), sums = 4 * std::sqrt(static_cast<double>(k)) * 0x1p-23;
    test::expect_near(gpu().host(there), exact, u, sums + (roundings - 1) * 8 * u, "sum");
  }
};

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

TEST_F(MatmulOntoTwins, NearFp64AndRoundedOnce) {
  constexpr i64 kSizes[][3] = {{1, 8, 1}, {7, 64, 24}, {5, 100, 33}, {3, 7, 70}, {33, 136, 40}};
  for (const auto& [m, n, k] : kSizes) {
    for (const DType dtype : kTypes) {
      for (const bool biased : {false, true}) check(m, n, k, dtype, biased, 1);
    }
  }
}

// If cuBLASLt cannot add to the output, two kernels give the result. Plans are cached, so each case has other shapes.
TEST_F(MatmulOntoTwins, WhereTheLibraryCannotTheyAreTwoKernels) {
  if (!std::getenv("SPILLWAY_EMULATED_GPUS")) GTEST_SKIP() << "needs emulated GPUs";
  i64 k = 81;
  for (const char* cannot : {"bias", "all"}) {
    ::setenv("SPILLWAY_EMULATED_BLAS", cannot, 1);
    for (const DType dtype : kTypes) check(6, 48, k, dtype, true, 3);
    ++k;
  }
  ::unsetenv("SPILLWAY_EMULATED_BLAS");
}

TEST_F(MatmulOntoTwins, OneKernelAndTheAddendIsLeft) {
  for (const bool biased : {false, true}) {
    const Problem p(6, 48, 21, DType::bf16, biased), there(p, [&](const Tensor&t) { return gpu()(t); });
    const test::GpuLog log;
    gpu().run([&] { return run(there); });
    EXPECT_TRUE(test::same_bits(gpu().host(there.addend), p.addend));
    if (!log.kept()) GTEST_SKIP() << "a GPU keeps no list of its kernels";
    EXPECT_EQ(log.launches(), 1);
  }
}

TEST(MatmulOnto, HasTheBitsOfItsPartsOnACpu) {
  for (const DType dtype : kTypes) {
    for (const bool biased : {false, true}) {
      const Problem p(9, 48, 300, dtype, biased);
      const Tensor product = empty(p.addend.shape(), dtype), sum = empty(p.addend.shape(), dtype);
      kernels::matmul(p.a, p.b, p.bias, product, workspace_for(p));
      kernels::add(p.addend, product, sum);
      EXPECT_TRUE(test::same_bits(run(p), sum));
    }
  }
}

}  // namespace
}  // namespace spillway::matmul_onto_cuda_test
