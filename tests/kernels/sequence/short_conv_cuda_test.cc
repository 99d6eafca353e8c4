// Compares the short convolution on a GPU with the CPU implementation in fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs
// on the CPU.
#include "kernels/sequence/short_conv.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::short_conv_cuda_test {
namespace {

class ShortConvTwins : public test::GpuTest {};

struct Case {
  i64 B, T, C, K;
  bool silu, biased, documents;
  std::string name() const { return "T " + std::to_string(T) + " C " + std::to_string(C) + " K " + std::to_string(K); }
};
struct Inputs {
  Tensor x, w, bias, before, dy, positions;
};

Inputs inputs(const Case& c, DType dtype) {
  Inputs in{test::random({c.B, c.T, c.C}, dtype, 1),
            test::random({c.C, c.K}, dtype, 2),
            c.biased ? test::random({c.C}, dtype, 3) : Tensor(),
            test::random({c.B, c.K - 1, c.C}, dtype, 4),
            test::random({c.B, c.T, c.C}, dtype, 5),
            {}};
  if (!c.documents) return in;
  in.positions = empty({c.B, c.T}, DType::int32);
  for (i64 i = 0; i < in.positions.elems(); ++i) in.positions.data<i32>()[i] = static_cast<i32>((i % c.T + 1) % (5 + i / c.T));
  return in;
}

template <class F>
Inputs each(const Inputs& in, F f) {
  const auto if_any = [&](const Tensor& t) { return t.defined() ? f(t) : t; };
  return {f(in.x), f(in.w), if_any(in.bias), f(in.before), f(in.dy), in.positions};
}

// Returns y with and without earlier inputs, the last inputs, and the gradients of x, w and the bias.
std::vector<Tensor> run(const Case& c, const Inputs& in) {
  const DType dtype = in.x.dtype(), wide = wide_dtype(dtype);
  const kernels::ShortConvOptions o{c.silu, in.positions};
  const auto like = [](const Tensor& t, DType of) { return empty(t.shape(), of); };
  std::vector<Tensor> all{like(in.x, dtype), like(in.x, dtype), like(in.before, dtype), like(in.x, dtype), like(in.w, wide)};
  if (c.biased) all.push_back(like(in.bias, wide));
  kernels::short_conv({in.x, in.w, in.bias}, o, in.before, all[0], all[2]);
  kernels::short_conv({in.x, in.w, in.bias}, o, {}, all[1], {});
  kernels::short_conv_gradient({in.x, in.w, in.bias}, o, in.dy, {all[3], all[4], c.biased ? all[5] : Tensor()});
  return all;
}

double largest(const Tensor& t) {
  double most = 0;
  for (i64 i = 0; i < t.elems(); ++i) most = std::max(most, std::abs(test::at(t, i)));
  return most;
}

// y and the gradient of x are sums of at most 9 terms, rounded once to dtype; the gradients of w and the bias are sums of B T terms in the
// wide dtype. An exponential errs by a few half ulps.
void expect_near(const Case& c, const std::vector<Tensor>& got, const std::vector<Tensor>& exact, const std::string& what) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double relative = test::half_ulp(got[i].dtype()) + 40 * test::half_ulp(wide_dtype(got[i].dtype()));
    test::expect_near(got[i], exact[i], relative, 40 * test::half_ulp(wide_dtype(got[i].dtype())) * largest(exact[i]),
                      c.name() + " " + what + " result " + std::to_string(i));
  }
}

TEST_F(ShortConvTwins, NearFp64) {
  for (const Case& c : {Case{2, 1, 5, 4, true, true, false}, Case{2, 37, 35, 4, true, true, true}, Case{1, 20, 33, 3, false, false, false},
                        Case{1, 9, 3, 8, false, true, true}, Case{1, 3, 2, 1, true, false, false}}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      const Inputs in = inputs(c, dtype);
      const auto exact = run(c, each(in, [](const Tensor& t) { return test::as(DType::f64, t); }));
      expect_near(c, run(c, in), exact, std::string(to_string(dtype)) + " CPU");
      std::vector<Tensor> there = gpu().run([&] {
        Inputs moved = each(in, [&](const Tensor& t) { return gpu()(t); });
        if (in.positions.defined()) moved.positions = gpu()(in.positions);
        return run(c, moved);
      });
      for (Tensor& t : there) t = gpu().host(t);
      expect_near(c, there, exact, std::string(to_string(dtype)) + " GPU");
    }
  }
}

}  // namespace
}  // namespace spillway::short_conv_cuda_test
