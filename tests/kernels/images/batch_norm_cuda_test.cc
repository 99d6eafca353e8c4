// Compares batch normalization on a GPU with the CPU implementation and with
// fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/images/batch_norm.h"

#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::batch_norm_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class BatchNormTwins : public test::GpuTest {};

struct Inputs {
  Tensor x, gamma, beta, dy, running_mean, running_variance;
};
struct Results {
  Tensor statistics, y, dx, dgamma, dbeta, mean, variance, fixed, fixed_dx;
};

template <class I, class F>
I each_input(const I& in, F f) {
  return {f(in.x), f(in.gamma), f(in.beta), f(in.dy), f(in.running_mean), f(in.running_variance)};
}

Results run(const Inputs& in) {
  const DType dtype = in.x.dtype(), wide = wide_dtype(dtype);
  const i64 channels = in.x.size(1);
  const auto numbers = [&] { return empty({channels}, wide); };
  const auto pairs = [&] { return empty({channels, 2}, wide); };
  const auto images = [&] { return empty(in.x.shape(), dtype); };
  Results r{pairs(), images(), images(), numbers(), numbers(), numbers(), numbers(), pairs(), images()};
  kernels::batch_statistics(in.x, 1e-5, r.statistics, r.mean, r.variance);
  kernels::batch_norm(in.x, in.gamma, in.beta, r.statistics, r.y);
  kernels::batch_norm_gradient(in.x, in.gamma, r.statistics, in.dy, true, r.dx, r.dgamma, r.dbeta);
  kernels::running_statistics(in.running_mean, in.running_variance, 1e-5, r.fixed);
  kernels::batch_norm_gradient(in.x, in.gamma, r.fixed, in.dy, false, r.fixed_dx, {}, {});
  return r;
}

template <class F>
Results each(const Results& r, F f) {
  return {f(r.statistics), f(r.y), f(r.dx), f(r.dgamma), f(r.dbeta), f(r.mean), f(r.variance), f(r.fixed), f(r.fixed_dx)};
}

Results on_gpu(test::Gpu& gpu, const Inputs& in) {
  const Results r = gpu.run([&] { return run(each_input(in, [&](const Tensor& t) { return gpu(t); })); });
  return each(r, [&](const Tensor& t) { return gpu.host(t); });
}
Results on_cpu(const Inputs& in) {
  return run(each_input(in, [](const Tensor& t) { return test::as(t.dtype(), t); }));
}
Results in_fp64(const Inputs& in) {
  return run(each_input(in, [](const Tensor& t) { return test::as(DType::f64, t); }));
}

Inputs inputs(const Shape& shape, DType dtype) {
  const i64 channels = shape[1];
  const DType wide = wide_dtype(dtype);
  const Inputs in{test::random(shape, dtype, 1), test::random({channels}, dtype, 2), test::random({channels}, dtype, 3),
                  test::random(shape, dtype, 4), test::random({channels}, wide, 5),  zeros({channels}, wide)};
  for (i64 c = 0; c < channels; ++c) {
    wide == DType::f64 ? in.running_variance.data<double>()[c] = 0.5 : in.running_variance.data<float>()[c] = 0.5f;
  }
  return in;
}

// Expects results near the fp64 ones. Sums are made in fp64 from short fp32 sums: some u (half an ulp) per
// element, and some more roundings per result, so 20 u of the terms are allowed. The factor (inverse deviation)
// of a channel with few elements may be large, and errors grow with it. Narrow results are rounded once more.
void expect_near_exact(const Results& got, const Results& exact, DType dtype, i64 count, const std::string& what) {
  const double near = 20 * test::half_ulp(wide_dtype(dtype)), narrow = is_half(dtype) ? test::half_ulp(dtype) : 0;
  double factor = 1;
  for (i64 i = 1; i < exact.statistics.elems(); i += 2) factor = std::max(factor, test::at(exact.statistics, i));
  const double sums = near * factor * std::sqrt(static_cast<double>(count));
  test::expect_near(got.statistics, exact.statistics, near * factor, near, what + " statistics");
  test::expect_near(got.mean, exact.mean, near, near, what + " mean");
  test::expect_near(got.variance, exact.variance, near, near, what + " variance");
  test::expect_near(got.fixed, exact.fixed, near, near, what + " fixed statistics");
  test::expect_near(got.y, exact.y, near + narrow, near * factor, what + " y");
  test::expect_near(got.dx, exact.dx, near + narrow, near * factor * factor, what + " dx");
  test::expect_near(got.fixed_dx, exact.fixed_dx, near + narrow, near, what + " dx of fixed statistics");
  test::expect_near(got.dgamma, exact.dgamma, near, sums, what + " dgamma");
  test::expect_near(got.dbeta, exact.dbeta, near, sums, what + " dbeta");
}

TEST_F(BatchNormTwins, NearFp64AndTheCpu) {
  const Shape shapes[] = {{2, 1, 1, 1}, {9, 2}, {5, 2, 7, 7}, {3, 1, 45, 49}, {300, 1, 2, 2}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : kFloats) {
      const Inputs in = inputs(shape, dtype);
      const std::string name = to_string(shape) + " " + std::string(to_string(dtype));
      const i64 count = shape.elems() / shape[1];
      const Results exact = in_fp64(in), got = on_gpu(gpu(), in);
      expect_near_exact(on_cpu(in), exact, dtype, count, name + " CPU");
      expect_near_exact(got, exact, dtype, count, name + " GPU");
    }
  }
}

TEST_F(BatchNormTwins, TheSameBitsAgain) {
  const Inputs in = inputs({3, 1, 20, 40}, DType::f32);
  const Results once = on_gpu(gpu(), in), again = on_gpu(gpu(), in);
  EXPECT_TRUE(test::same_bits(once.statistics, again.statistics));
  EXPECT_TRUE(test::same_bits(once.dx, again.dx));
  EXPECT_TRUE(test::same_bits(once.dgamma, again.dgamma));
}

TEST_F(BatchNormTwins, GroupsNearFp64AndTheCpu) {
  struct Form {
    Shape x;
    i64 groups;
  };
  struct Gradients {
    Tensor y, dx, dgamma, dbeta;
  };
  for (const Form& f : {Form{{2, 1, 2, 1}, 1}, Form{{2, 4}, 2}, Form{{1, 6, 7, 7}, 3}, Form{{1, 2, 45, 49}, 1}, Form{{2, 3, 2, 2}, 3}}) {
    for (const DType dtype : kFloats) {
      const i64 all = f.x[0] * f.groups, count = f.x.elems() / all;
      const auto normalise = [&](const Inputs& in) {
        const DType type = in.x.dtype(), wide = wide_dtype(type);
        const Gradients r{empty(f.x, type), empty(f.x, type), empty({f.x[0], f.x[1]}, wide), empty({f.x[0], f.x[1]}, wide)};
        const Tensor statistics = empty({all, 2}, wide);
        kernels::batch_statistics(in.x.reshape({1, all, count}), 1e-2, statistics);
        kernels::group_norm(in.x, in.gamma, in.beta, statistics, r.y);
        kernels::group_norm_gradient(in.x, in.gamma, statistics, in.dy, r.dx, r.dgamma, r.dbeta);
        return r;
      };
      const Inputs in = inputs(f.x, dtype);
      const Gradients exact = normalise(each_input(in, [](const Tensor&t) { return test::as(DType::f64, t); })), cpu = normalise(in);
      const Gradients there = gpu().run([&] { return normalise(each_input(in, [&](const Tensor& t) { return gpu()(t); })); });
      const Gradients got{gpu().host(there.y), gpu().host(there.dx), gpu().host(there.dgamma), gpu().host(there.dbeta)};
      // The tolerances are those of expect_near_exact() with a factor (inverse deviation) of at most 10.
      const double near = 20 * test::half_ulp(wide_dtype(dtype)), narrow = is_half(dtype) ? test::half_ulp(dtype) : 0;
      for (const auto& [results, where] : {std::pair(cpu, " CPU"), std::pair(got, " GPU")}) {
        const std::string name = to_string(f.x) + " " + std::string(to_string(dtype)) + where;
        test::expect_near(results.y, exact.y, near + narrow, near * 10, name + " y");
        test::expect_near(results.dx, exact.dx, near + narrow, near * 100, name + " dx");
        test::expect_near(results.dgamma, exact.dgamma, near, near * 10 * std::sqrt(static_cast<double>(count)), name + " dgamma");
        test::expect_near(results.dbeta, exact.dbeta, near, near * std::sqrt(static_cast<double>(count)), name + " dbeta");
      }
    }
  }
}

// One channel has a mean far from zero, and no digits may get lost. The other has equal elements only, so its variance is zero.
TEST_F(BatchNormTwins, MomentsAroundTheChannelsOwnValues) {
  const Inputs in = inputs({4, 2, 6, 6}, DType::f32);
  for (i64 i = 0; i < in.x.elems(); ++i) in.x.data<float>()[i] = i / 36 % 2 == 0 ? in.x.data<float>()[i] + 1000 : 0.1f;
  const Results exact = in_fp64(in), got = on_gpu(gpu(), in);
  test::expect_near(got.statistics, exact.statistics, 20 * 0x1p-24, 0, "statistics");
  EXPECT_EQ(test::at(got.statistics, 3), static_cast<float>(1 / std::sqrt(1e-5)));
}

}  // namespace
}  // namespace spillway::batch_norm_cuda_test
