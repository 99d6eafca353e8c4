// Compares the GPU's clamped gated linear unit with the CPU's in fp64.
#include "kernels/elementwise/clamped_glu.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::clamped_glu_cuda_test {
namespace {

class ClampedGluTwins : public test::GpuTest {};

TEST_F(ClampedGluTwins, AreTheCpuOnes) {
  constexpr kernels::GluClamp kClamp{.slope = 1.702, .limit = 0.75};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const i64 n : {1, 333, 4096}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(n));
      const Tensor gate = test::random({n}, dtype, 1), up = test::random({n}, dtype, 2), dy = test::random({n}, dtype, 3);
      const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
      const Tensor want_y = empty({n}, DType::f64), want_gate = empty({n}, DType::f64), want_up = empty({n}, DType::f64);
      kernels::clamped_glu(kClamp, wide(gate), wide(up), want_y);
      kernels::clamped_glu_gradient(kClamp, wide(gate), wide(up), wide(dy), want_gate, want_up);
      const Tensor y = gpu().empty({n}, dtype), dgate = gpu().empty({n}, dtype), dup = gpu().empty({n}, dtype);
      const Tensor dgate_alone = gpu().empty({n}, dtype), dup_alone = gpu().empty({n}, dtype);
      gpu().run([&] {
        const Tensor g = gpu()(gate), u = gpu()(up), gradient = gpu()(dy);
        kernels::clamped_glu(kClamp, g, u, y);
        kernels::clamped_glu_gradient(kClamp, g, u, gradient, dgate, dup);
        kernels::clamped_glu_gradient(kClamp, g, u, gradient, dgate_alone, {});
        kernels::clamped_glu_gradient(kClamp, g, u, gradient, {}, dup_alone);
      });
      EXPECT_TRUE(test::same_bits(gpu().host(dgate), gpu().host(dgate_alone)));
      EXPECT_TRUE(test::same_bits(gpu().host(dup), gpu().host(dup_alone)));
      // A formula has about ten roundings in the wide type; narrow types round once more.
      const double error = 20 * test::half_ulp(wide_dtype(dtype)) + test::half_ulp(dtype);
      test::expect_near(gpu().host(y), want_y, error, error, "y");
      test::expect_near(gpu().host(dgate), want_gate, error, error, "dgate");
      test::expect_near(gpu().host(dup), want_up, error, error, "dup");
    }
  }
}

}  // namespace
}  // namespace spillway::clamped_glu_cuda_test
