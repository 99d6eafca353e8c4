// Compares normalization on a GPU with the CPU implementation and with fp64.
// In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/accumulate.h"
#include "kernels/rows/norm.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::norm_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class NormTwins : public test::GpuTest {};

struct Case {
  i64 rows, columns;
  bool layer;
  DType dtype;
  std::string name() const {
    return std::to_string(rows) + "x" + std::to_string(columns) + (layer ? " layer " : " rms ") + std::string(to_string(dtype));
  }
};

struct Inputs {
  Tensor x, gamma, beta, dy;
  explicit Inputs(const Case& c)
      : x(test::random({c.rows, c.columns}, c.dtype, 1)),
        gamma(test::random({c.columns}, c.dtype, 2)),
        beta(c.layer ? test::random({c.columns}, c.dtype, 3) : Tensor()),
        dy(test::random({c.rows, c.columns}, c.dtype, 4)) {}
};

struct Results {
  Tensor y, statistics, dx, dgamma, dbeta;
};

// Computes a norm and all its gradients with the kernels of the current stream's device.
Results run(const Case& c, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& dy) {
  const DType wide = wide_dtype(c.dtype);
  const Shape shape{c.rows, c.columns};
  Results r{empty(shape, c.dtype), empty({c.rows, 2}, wide), empty(shape, c.dtype), empty({c.columns}, wide),
            c.layer ? empty({c.columns}, wide) : Tensor()};
  kernels::norm(x, gamma, beta, 1e-5, r.y, r.statistics);
  const Tensor workspace = empty({kernels::norm_gradient_workspace_bytes(c.rows, c.columns, c.dtype)}, DType::uint8);
  kernels::norm_gradient(x, gamma, r.statistics, dy, c.layer, {}, r.dx, r.dgamma, r.dbeta, workspace);
  return r;
}

Results on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in) {
  const Results r = gpu.run([&] { return run(c, gpu(in.x), gpu(in.gamma), gpu(in.beta), gpu(in.dy)); });
  return {gpu.host(r.y), gpu.host(r.statistics), gpu.host(r.dx), gpu.host(r.dgamma), c.layer ? gpu.host(r.dbeta) : Tensor()};
}

Results in_fp64(const Case& c, const Inputs& in) {
  const auto wide = [](const Tensor& t) { return t.defined() ? test::as(DType::f64, t) : t; };
  Case exact = c;
  exact.dtype = DType::f64;
  return run(exact, wide(in.x), wide(in.gamma), wide(in.beta), wide(in.dy));
}

// Expects results near `want`. A sum of n numbers of size 1 in the wide type, with half an ulp u, errs by about n u / 2 at most in any
// order, and by sqrt(n) u if errors are random, as in these tests. Ten times that is allowed. A narrow result is rounded once more.
void expect_near_exact(const Case& c, const Results& got, const Results& want, const std::string& what) {
  const double u = test::half_ulp(wide_dtype(c.dtype)), narrow = is_half(c.dtype) ? test::half_ulp(c.dtype) : 0;
  const double row = 10 * u * std::sqrt(static_cast<double>(c.columns)) + 20 * u,
               column = 10 * u * std::sqrt(static_cast<double>(c.rows)) + 20 * u;
  test::expect_near(got.statistics, want.statistics, row, row, what + " statistics");
  // A row of few equal numbers has a large factor (inverse deviation), by which the error of its cancelled digits grows.
  double factor = 1;
  for (i64 i = 0; i < c.rows; ++i) factor = std::max(factor, test::at(want.statistics, 2 * i + 1));
  test::expect_near(got.y, want.y, row + narrow, row * factor, what + " y");
  test::expect_near(got.dx, want.dx, row + narrow, row * factor * factor, what + " dx");
  test::expect_near(got.dgamma, want.dgamma, column, (column + row) * factor * std::sqrt(static_cast<double>(c.rows)), what + " dgamma");
  if (c.layer) test::expect_near(got.dbeta, want.dbeta, column, column * std::sqrt(static_cast<double>(c.rows)), what + " dbeta");
}

TEST_F(NormTwins, NearFp64AndTheCpu) {
  constexpr i64 kSizes[][2] = {{1, 1}, {1, 7}, {5, 8}, {3, 33}, {300, 33}, {17, 100}, {2, 1024}, {2, 1027}, {1, 4101}};
  for (const auto& [rows, columns] : kSizes) {
    for (const DType dtype : kFloats) {
      for (const bool layer : {true, false}) {
        const Case c{rows, columns, layer, dtype};
        const Inputs in(c);
        const Results exact = in_fp64(c, in);
        expect_near_exact(c, run(c, in.x, in.gamma, in.beta, in.dy), exact, c.name() + " CPU");
        expect_near_exact(c, on_gpu(gpu(), c, in), exact, c.name() + " GPU");
      }
    }
  }
}

TEST_F(NormTwins, TheSameBitsAgainAndWhereverTheViewsLie) {
  for (const DType dtype : kFloats) {
    const Case c{2, 1040, true, dtype};
    const Inputs in(c);
    const Results once = on_gpu(gpu(), c, in), again = on_gpu(gpu(), c, in);
    EXPECT_TRUE(test::same_bits(once.y, again.y));
    EXPECT_TRUE(test::same_bits(once.dx, again.dx));
    EXPECT_TRUE(test::same_bits(once.dgamma, again.dgamma));
    EXPECT_TRUE(test::same_bits(once.dbeta, again.dbeta));
    // The tensors begin one element after an aligned address, so that no access of 16 bytes is aligned.
    const Tensor x = gpu().empty({c.rows * c.columns + 1}, dtype), dy = gpu().empty({c.rows * c.columns + 1}, dtype);
    const auto shifted = [&](const Tensor& memory, const Tensor& values) {
      const Tensor view(memory.storage(), size_of(dtype), values.shape(), dtype);
      gpu().run([&] { kernels::copy(gpu()(values), view); });
      return view;
    };
    const Tensor x_view = shifted(x, in.x), dy_view = shifted(dy, in.dy);
    const Results odd = gpu().run([&] { return run(c, x_view, gpu()(in.gamma), gpu()(in.beta), dy_view); });
    EXPECT_TRUE(test::same_bits(once.y, gpu().host(odd.y)));
    EXPECT_TRUE(test::same_bits(once.statistics, gpu().host(odd.statistics)));
    EXPECT_TRUE(test::same_bits(once.dx, gpu().host(odd.dx)));
    EXPECT_TRUE(test::same_bits(once.dgamma, gpu().host(odd.dgamma)));
  }
}

TEST_F(NormTwins, OnlyTheGradientsThatAreWanted) {
  const Case c{20, 48, true, DType::f32};
  const Inputs in(c);
  const Results all = on_gpu(gpu(), c, in);
  const Tensor dx = gpu().empty({20, 48}, DType::f32), dgamma = gpu().empty({48}, DType::f32), dbeta = gpu().empty({48}, DType::f32);
  const Tensor workspace = gpu().empty({kernels::norm_gradient_workspace_bytes(20, 48, DType::f32)}, DType::uint8);
  gpu().run([&] {
    const Tensor x = gpu()(in.x), gamma = gpu()(in.gamma), dy = gpu()(in.dy), statistics = gpu()(all.statistics);
    kernels::norm_gradient(x, gamma, statistics, dy, true, {}, dx, {}, {}, workspace);
    kernels::norm_gradient(x, gamma, statistics, dy, true, {}, {}, dgamma, {}, workspace);
    kernels::norm_gradient(x, gamma, statistics, dy, true, {}, {}, {}, dbeta, workspace);
  });
  EXPECT_TRUE(test::same_bits(gpu().host(dx), all.dx));
  EXPECT_TRUE(test::same_bits(gpu().host(dgamma), all.dgamma));
  EXPECT_TRUE(test::same_bits(gpu().host(dbeta), all.dbeta));
}

// Adds a norm's gradient to the gradient from other ops. A GPU rounds this sum once. On the CPU the sum is bitwise that of add().
TEST_F(NormTwins, AddToWhatOthersGave) {
  for (const DType dtype : kFloats) {
    for (const bool layer : {true, false}) {
      const Case c{17, 136, layer, dtype};
      const Inputs in(c);
      const Tensor others = test::random({c.rows, c.columns}, dtype, 5, 3);
      const auto with_others = [&](const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, const Tensor& from) {
        const Tensor dx = empty(x.shape(), x.dtype());
        kernels::norm_gradient(x, gamma, statistics, dy, layer, from, dx, {}, {},
                               empty({kernels::norm_gradient_workspace_bytes(c.rows, c.columns, x.dtype())}, DType::uint8));
        return dx;
      };
      const auto wide = [](const Tensor& t) { return test::as(DType::f64, t); };
      const Results alone = run(c, in.x, in.gamma, in.beta, in.dy), there = on_gpu(gpu(), c, in), exact = in_fp64(c, in);
      const Tensor want = with_others(wide(in.x), wide(in.gamma), exact.statistics, wide(in.dy), wide(others));
      const Tensor got =
          gpu().run([&] { return with_others(gpu()(in.x), gpu()(in.gamma), gpu()(there.statistics), gpu()(in.dy), gpu()(others)); });
      const double row = 10 * test::half_ulp(wide_dtype(dtype)) * std::sqrt(136.0), narrow = is_half(dtype) ? test::half_ulp(dtype) : 0;
      test::expect_near(gpu().host(got), want, row + narrow, 4 * row, c.name());

      const Tensor sum = empty(others.shape(), dtype);
      kernels::add(others, alone.dx, sum);
      EXPECT_TRUE(test::same_bits(with_others(in.x, in.gamma, alone.statistics, in.dy, others), sum));
    }
  }
}

}  // namespace
}  // namespace spillway::norm_cuda_test
