// Compares the gated delta rule on a GPU with the CPU implementation in fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on
// the CPU.
#include "kernels/sequence/delta_rule.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::delta_rule_cuda_test {
namespace {

class DeltaRuleTwins : public test::GpuTest {};

struct Case {
  i64 B, T, J, H, K, V;
  bool documents = false;
  kernels::DeltaShape shape() const { return {B, T, J, H, K, V}; }
  i64 columns() const { return 2 * J * K + H * V; }
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
    return "T " + std::to_string(T) + " H " + std::to_string(H) + " K " + std::to_string(K) + " V " + std::to_string(V) +
           (documents ? " documents" : "");
  }
};

struct Inputs {
  Tensor qkv, a, b, a_log, dt_bias, dout, initial, positions;
};

Inputs inputs(const Case& c, DType dtype) {
  return {test::random({c.B, c.T, c.columns()}, dtype, 1),
          test::random({c.B, c.T, c.H}, dtype, 2),
          test::random({c.B, c.T, c.H}, dtype, 3),
          test::random({c.H}, dtype, 4, 0.7),
          test::random({c.H}, dtype, 5),
          test::random({c.B, c.T, c.H * c.V}, dtype, 6),
          test::random({c.B, c.H, c.K, c.V}, wide_dtype(dtype), 7),
          c.positions()};
}

kernels::DeltaTensors parts(const Case& c, const Tensor& qkv, const Tensor& a, const Tensor& b, const Tensor& a_log,
                            const Tensor& dt_bias) {
  const i64 keys = c.J * c.K;
  return {qkv.slice(2, 0, keys), qkv.slice(2, keys, 2 * keys), qkv.slice(2, 2 * keys, c.columns()), a, b, a_log, dt_bias};
}

// Returns o, the last state, and the gradients of qkv, a, b, a_log and dt_bias. o is computed with an initial state, which the last state
// overwrites; gradients are those without one.
std::vector<Tensor> run(const Case& c, const Inputs& in) {
  const DType dtype = in.qkv.dtype(), wide = wide_dtype(dtype);
  const auto bytes = [](i64 n) { return empty({n}, DType::uint8); };
  kernels::DeltaOptions o;
  o.key_heads = c.J, o.positions_BT = in.positions;
  const Tensor out = empty(in.dout.shape(), dtype), dqkv = empty(in.qkv.shape(), dtype), da = empty(in.a.shape(), dtype),
               db = empty(in.b.shape(), dtype), da_log = empty({c.H}, wide), ddt_bias = empty({c.H}, wide);
  const kernels::DeltaTensors all = parts(c, in.qkv, in.a, in.b, in.a_log, in.dt_bias);
  kernels::delta_rule(all, o, in.initial, out, in.initial, bytes(kernels::delta_rule_workspace_bytes(c.shape(), dtype)));
  kernels::delta_rule_gradient(all, o, in.dout, parts(c, dqkv, da, db, da_log, ddt_bias),
                               bytes(kernels::delta_rule_gradient_workspace_bytes(c.shape(), dtype)));
  return {out, in.initial, dqkv, da, db, da_log, ddt_bias};
}

template <class F>
Inputs each(const Inputs& in, F f) {
  return {f(in.qkv), f(in.a), f(in.b), f(in.a_log), f(in.dt_bias), f(in.dout), f(in.initial), in.positions};
}

std::vector<Tensor> on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in) {
  std::vector<Tensor> all = gpu.run([&] {
    Inputs there = each(in, [&](const Tensor& t) { return gpu(t); });
    there.positions = gpu(in.positions);
    return run(c, there);
  });
  for (Tensor& t : all) t = gpu.host(t);
  return all;
}

double largest(const Tensor& t) {
  double most = 0;
  for (i64 i = 0; i < t.elems(); ++i) most = std::max(most, std::abs(test::at(t, i)));
  return most;
}

// As of the selective scan (selective_scan_cuda_test.cc): in 16 bits each product errs by some half ulps of that type, in f32 and f64 by
// some half ulps of theirs times the logarithm of the decay, at most about 100. A result follows up to five products one after the other.
void expect_near(const Case& c, const std::vector<Tensor>& got, const std::vector<Tensor>& exact, DType dtype, const std::string& what) {
  const double relative = is_half(dtype) ? 8 * test::half_ulp(dtype) : 400 * test::half_ulp(dtype);
  for (size_t i = 0; i < exact.size(); ++i) {
    test::expect_near(got[i], exact[i], relative, relative * largest(exact[i]),
                      c.name() + " " + std::string(to_string(dtype)) + " " + what + " result " + std::to_string(i));
  }
}

void compare(test::Gpu& gpu, const Case& c, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) {
    const Inputs in = inputs(c, dtype), wide = each(in, [](const Tensor&t) { return test::as(DType::f64, t); });
    const auto copy = [](const Tensor& t) { return test::as(t.dtype(), t); };
    const auto exact = run(c, wide);
    expect_near(c, run(c, each(in, copy)), exact, dtype, "CPU");
    const auto once = on_gpu(gpu, c, in), again = on_gpu(gpu, c, in);
    expect_near(c, once, exact, dtype, "GPU");
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(test::same_bits(once[i], again[i])) << c.name() << " result " << i;
  }
}

TEST_F(DeltaRuleTwins, NearFp64) {
  compare(gpu(), {1, 1, 1, 2, 3, 5}, {DType::f32, DType::f64, DType::bf16, DType::f16});
  compare(gpu(), {2, 65, 2, 4, 7, 9}, {DType::f32, DType::bf16});
  compare(gpu(), {1, 130, 1, 2, 16, 33, true}, {DType::f64, DType::bf16, DType::f16});
  compare(gpu(), {2, 64, 3, 3, 8, 16, true}, {DType::f32});
}

class DeltaRuleTwinsMore : public test::GpuTest {};
TEST_F(DeltaRuleTwinsMore, OfLargerShapes) {
  compare(gpu(), {1, 200, 1, 2, 128, 128, true}, {DType::f32, DType::bf16});
  compare(gpu(), {2, 191, 2, 4, 33, 40}, {DType::f32, DType::f64, DType::bf16, DType::f16});
}

}  // namespace
}  // namespace spillway::delta_rule_cuda_test
