// Compares the scan of Mamba 2 on a GPU with the CPU implementation in fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on
// the CPU.
#include "kernels/sequence/selective_scan.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::selective_scan_cuda_test {
namespace {

class ScanTwins : public test::GpuTest {};

struct Case {
  i64 B, T, H, P, G, N;
  bool documents = false;
  kernels::ScanShape shape() const { return {B, T, H, P, G, N}; }
  // Returns positions of packed documents. Their lengths grow by 29 (1, 30, 59 … in row 0), and each row begins with another length.
  Tensor positions() const {
    if (!documents) return {};
    const Tensor positions = empty({B, T}, DType::int32);
    for (i64 b = 0; b < B; ++b) {
      for (i64 t = 0, begin = 0, length = 1 + 4 * b; t < T; ++t) {
        if (t == begin + length) begin = t, length += 29;
        positions.data<i32>()[b * T + t] = static_cast<i32>(t - begin);
      }
    }
    return positions;
  }
  std::string name() const {
    return "T " + std::to_string(T) + " H " + std::to_string(H) + " P " + std::to_string(P) + " N " + std::to_string(N) +
           (documents ? " documents" : "");
  }
};

struct Inputs {
  Tensor xbc, dt, a_log, dt_bias, d, dy, initial, positions;
};
struct Results {
  std::vector<Tensor> all;  // y, the last state, and the gradients of xbc, dt, a_log, dt_bias and d
};

Inputs inputs(const Case& c, DType dtype) {
  return {test::random({c.B, c.T, c.H * c.P + 2 * c.G * c.N}, dtype, 1),
          test::random({c.B, c.T, c.H}, dtype, 2),
          test::random({c.H}, dtype, 3, 0.7),
          test::random({c.H}, dtype, 4),
          test::random({c.H}, dtype, 5),
          test::random({c.B, c.T, c.H * c.P}, dtype, 6),
          test::random({c.B, c.H, c.N, c.P}, wide_dtype(dtype), 7),
          c.positions()};
}

kernels::ScanTensors parts(const Case& c, const Tensor& xbc, const Tensor& dt, const Tensor& a_log, const Tensor& dt_bias,
                           const Tensor& d) {
  const i64 width = c.H * c.P, of_groups = c.G * c.N;
  return {xbc.slice(2, 0, width),
          dt,
          xbc.slice(2, width, width + of_groups),
          xbc.slice(2, width + of_groups, width + 2 * of_groups),
          a_log,
          dt_bias,
          d};
}

// y is computed with an initial state, which the last state overwrites; gradients are those without one.
Results run(const Case& c, const Inputs& in) {
  const DType dtype = in.xbc.dtype(), wide = wide_dtype(dtype);
  const auto bytes = [](i64 n) { return empty({n}, DType::uint8); };
  kernels::ScanOptions o;
  o.groups = c.G, o.smallest_dt = 0.1, o.positions_BT = in.positions;
  const Tensor y = empty(in.dy.shape(), dtype), dxbc = empty(in.xbc.shape(), dtype), ddt = empty(in.dt.shape(), dtype);
  const Tensor da_log = empty({c.H}, wide), ddt_bias = empty({c.H}, wide), dd = empty({c.H}, wide);
  const kernels::ScanTensors all = parts(c, in.xbc, in.dt, in.a_log, in.dt_bias, in.d);
  kernels::selective_scan(all, o, in.initial, y, in.initial, bytes(kernels::selective_scan_workspace_bytes(c.shape(), dtype)));
  kernels::selective_scan_gradient(all, o, in.dy, parts(c, dxbc, ddt, da_log, ddt_bias, dd),
                                   bytes(kernels::selective_scan_gradient_workspace_bytes(c.shape(), dtype)));
  return {{y, in.initial, dxbc, ddt, da_log, ddt_bias, dd}};
}

template <class F>
Inputs each(const Inputs& in, F f) {
  return {f(in.xbc), f(in.dt), f(in.a_log), f(in.dt_bias), f(in.d), f(in.dy), f(in.initial), in.positions};
}

Results on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in) {
  Results r = gpu.run([&] {
    Inputs there = each(in, [&](const Tensor& t) { return gpu(t); });
    there.positions = gpu(in.positions);
    return run(c, there);
  });
  for (Tensor& t : r.all) t = gpu.host(t);
  return r;
}

double largest(const Tensor& t) {
  double most = 0;
  for (i64 i = 0; i < t.elems(); ++i) most = std::max(most, std::abs(test::at(t, i)));
  return most;
}

// Results are sums of products of rounded operands: in 16 bits each product errs by some half ulps of that type, in f32 and f64 by some
// half ulps of theirs times the logarithm of the decay, at most about 100. Random errors of a sum grow with the square root of the number
// of terms, as the sum does, so they are bounded by a multiple of the largest result.
void expect_near(const Case& c, const Results& got, const Results& exact, DType dtype, const std::string& what) {
  const double relative = is_half(dtype) ? 8 * test::half_ulp(dtype) : 400 * test::half_ulp(dtype);
  for (size_t i = 0; i < exact.all.size(); ++i) {
    test::expect_near(got.all[i], exact.all[i], relative, relative * largest(exact.all[i]),
                      c.name() + " " + std::string(to_string(dtype)) + " " + what + " result " + std::to_string(i));
  }
}

void compare(test::Gpu& gpu, const Case& c, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) {
    const Inputs in = inputs(c, dtype), wide = each(in, [](const Tensor&t) { return test::as(DType::f64, t); });
    const auto copy = [](const Tensor& t) { return test::as(t.dtype(), t); };
    const Results exact = run(c, wide);
    expect_near(c, run(c, each(in, copy)), exact, dtype, "CPU");
    const Results once = on_gpu(gpu, c, in), again = on_gpu(gpu, c, in);
    expect_near(c, once, exact, dtype, "GPU");
    for (size_t i = 0; i < once.all.size(); ++i) EXPECT_TRUE(test::same_bits(once.all[i], again.all[i])) << c.name() << " result " << i;
  }
}

TEST_F(ScanTwins, NearFp64) {
  compare(gpu(), {1, 1, 2, 3, 1, 5}, {DType::f32, DType::f64, DType::bf16, DType::f16});
  compare(gpu(), {2, 65, 5, 7, 1, 9}, {DType::f32, DType::bf16});
  compare(gpu(), {1, 130, 4, 16, 2, 17, true}, {DType::f64, DType::bf16, DType::f16});
  compare(gpu(), {2, 64, 3, 8, 1, 16, true}, {DType::f32});
}

class ScanTwinsMore : public test::GpuTest {};
TEST_F(ScanTwinsMore, OfLargerShapes) {
  compare(gpu(), {1, 200, 6, 64, 1, 128, true}, {DType::f32, DType::bf16});
  compare(gpu(), {2, 191, 4, 33, 2, 40}, {DType::f32, DType::f64, DType::bf16, DType::f16});
}

}  // namespace
}  // namespace spillway::selective_scan_cuda_test
