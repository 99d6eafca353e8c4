// Compares cross entropy on a GPU with the CPU implementation and with fp64.
// In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include "kernels/losses/cross_entropy.h"

#include <limits>

#include "base/error.h"
#include "kernels/accumulate.h"
#include "tests/support/gpu.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::cross_entropy_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr double kFactor = 0.125;

class CrossEntropyTwins : public test::GpuTest {};

struct Results {
  Tensor statistics, loss, gradient;
};

Results run(const Tensor& logits, const Tensor& targets, DType gradient_dtype) {
  const i64 rows = logits.size(0);
  const DType wide = wide_dtype(logits.dtype());
  Results r{empty({rows, 2}, wide), empty({rows}, wide), empty(logits.shape(), gradient_dtype)};
  kernels::cross_entropy(logits, targets, r.statistics, r.loss);
  kernels::cross_entropy_gradient(logits, targets, r.statistics, kFactor, r.gradient);
  return r;
}

Results on_gpu(test::Gpu& gpu, const Tensor& logits, const Tensor& targets, DType gradient_dtype) {
  const Results r = gpu.run([&] { return run(gpu(logits), gpu(targets), gradient_dtype); });
  return {gpu.host(r.statistics), gpu.host(r.loss), gpu.host(r.gradient)};
}

Tensor some_targets(i64 rows, i64 columns) {
  std::vector<i32> all;
  for (i64 row = 0; row < rows; ++row) all.push_back(row % 4 == 3 ? -100 : static_cast<i32>((row * 7919 + columns - 1) % columns));
  return test::ints(all, {rows});
}

// Expects results near the fp64 ones. Logits of standard deviation 3 are within 11 of each other. Let u be half an ulp. Each exponential
// errs by 11 u from rounding its argument and by 2 u from the exponential itself. A dozen rescalings of running sums add 3 u each, and sums
// of some hundred terms per thread and in a tree add the rest: together less than 100 u.
void expect_near_exact(const Results& got, const Results& exact, DType dtype, const std::string& what) {
  const double near = 100 * test::half_ulp(wide_dtype(dtype));
  const DType stored = got.gradient.dtype();
  const double narrow = is_half(stored) ? test::half_ulp(stored) : 0;
  test::expect_near(got.statistics, exact.statistics, near, 0, what + " statistics");
  test::expect_near(got.loss, exact.loss, near, near, what + " loss");
  test::expect_near(got.gradient, exact.gradient, near + narrow, near * kFactor, what + " gradient");
}

TEST_F(CrossEntropyTwins, NearFp64AndTheCpu) {
  constexpr i64 kSizes[][2] = {{1, 1}, {5, 2}, {6, 100}, {13, 257}, {4, 1024}, {2, 1025}, {3, 4104}, {1, 50257}};
  for (const auto& [rows, columns] : kSizes) {
    const Tensor targets = some_targets(rows, columns);
    for (const DType dtype : kFloats) {
      const Tensor logits = test::random({rows, columns}, dtype, 5, 3);
      const std::string name = std::to_string(rows) + "x" + std::to_string(columns) + " " + std::string(to_string(dtype));
      const Results exact = run(test::as(DType::f64, logits), targets, DType::f64);
      expect_near_exact(run(logits, targets, dtype), exact, dtype, name + " CPU");
      expect_near_exact(on_gpu(gpu(), logits, targets, dtype), exact, dtype, name + " GPU");
      for (const DType narrow : {DType::bf16, DType::f16}) {
        if (dtype == DType::f32) expect_near_exact(on_gpu(gpu(), logits, targets, narrow), exact, dtype, name + " GPU, rounded");
      }
    }
  }
}

TEST_F(CrossEntropyTwins, TheSameBitsAgainAndWhereverTheLogitsLie) {
  for (const DType dtype : kFloats) {
    const i64 rows = 3, columns = 2056;
    const Tensor logits = test::random({rows, columns}, dtype, 6, 3), targets = some_targets(rows, columns);
    const Results once = on_gpu(gpu(), logits, targets, dtype), again = on_gpu(gpu(), logits, targets, dtype);
    EXPECT_TRUE(test::same_bits(once.loss, again.loss));
    EXPECT_TRUE(test::same_bits(once.gradient, again.gradient));
    const Tensor memory = gpu().empty({rows * columns + 1}, dtype);
    const Tensor shifted(memory.storage(), size_of(dtype), {rows, columns}, dtype);
    const Results odd = gpu().run([&] {
      kernels::copy(gpu()(logits), shifted);
      return run(shifted, gpu()(targets), dtype);
    });
    EXPECT_TRUE(test::same_bits(once.statistics, gpu().host(odd.statistics)));
    EXPECT_TRUE(test::same_bits(once.loss, gpu().host(odd.loss)));
    EXPECT_TRUE(test::same_bits(once.gradient, gpu().host(odd.gradient)));
  }
}

// The gradient may overwrite the logits: each of its narrow rows then begins where the f32 row of logits began.
TEST_F(CrossEntropyTwins, InPlace) {
  for (const i64 columns : {3, 130, 1024, 1026, 6000}) {
    for (const DType stored : {DType::f32, DType::bf16, DType::f16}) {
      const i64 rows = 4;
      const Tensor logits = test::random({rows, columns}, DType::f32, 7, 3), targets = some_targets(rows, columns);
      const Results apart = on_gpu(gpu(), logits, targets, stored);
      const Tensor got = gpu().run([&] {
        const Tensor x = gpu()(logits), t = gpu()(targets), statistics = gpu()(apart.statistics), copy = empty({rows, columns}, stored);
        const i64 each = 4 / size_of(stored);
        const Tensor there = x.reinterpret({rows, each * columns}, stored).slice(1, 0, columns);
        kernels::cross_entropy_gradient(x, t, statistics, kFactor, there);
        for (i64 row = 0; row < rows; ++row) kernels::copy(there.slice(0, row, row + 1), copy.slice(0, row, row + 1));
        return copy;
      });
      EXPECT_TRUE(test::same_bits(gpu().host(got), apart.gradient)) << columns;
    }
  }
}

// Computes cross entropy from parts, each with some columns of all rows, in rows whose pitch differs from part to part. Zeros follow each
// part's gradient.
Results in_parts(const Tensor& logits, const Tensor& targets, DType gradient_dtype, const std::vector<i64>& begins, i64 pad) {
  const i64 rows = logits.size(0), vocabulary = logits.size(1);
  const DType wide = wide_dtype(logits.dtype());
  Results r{empty({rows, 2}, wide), empty({rows}, wide), empty(logits.shape(), gradient_dtype)};
  const auto for_parts = [&](auto work) {
    for (size_t i = 0; i < begins.size(); ++i) {
      const i64 begin = begins[i], end = i + 1 < begins.size() ? begins[i + 1] : vocabulary;
      const Tensor memory = empty({rows, end - begin + pad}, logits.dtype()), part = memory.slice(1, 0, end - begin);
      for (i64 row = 0; row < rows; ++row) kernels::copy(logits.slice(0, row, row + 1).slice(1, begin, end), part.slice(0, row, row + 1));
      work(part, begin, end);
    }
  };
  for_parts(
      [&](const Tensor& part, i64 begin, i64) { kernels::cross_entropy_part(part, begin, vocabulary, targets, r.statistics, r.loss); });
  for_parts([&](const Tensor& part, i64 begin, i64 end) {
    const Tensor gradient = empty({rows, end - begin + pad}, gradient_dtype);
    kernels::cross_entropy_part_gradient(part, begin, vocabulary, targets, r.statistics, kFactor, gradient);
    for (i64 row = 0; row < rows; ++row)
      kernels::copy(gradient.slice(0, row, row + 1).slice(1, 0, end - begin), r.gradient.slice(0, row, row + 1).slice(1, begin, end));
    const Tensor behind = to_host(gradient);
    for (i64 row = 0; row < rows; ++row) {
      for (i64 c = end - begin; c < end - begin + pad; ++c) EXPECT_EQ(test::at(behind, row * (end - begin + pad) + c), 0);
    }
  });
  return r;
}

TEST_F(CrossEntropyTwins, InParts) {
  for (const DType dtype : kFloats) {
    for (const std::vector<i64>& begins : {std::vector<i64>{0, 1}, {0, 1040, 2080}}) {
      const i64 rows = 4, columns = 2297, pad = 7;
      const Tensor logits = test::random({rows, columns}, dtype, 5, 3), targets = some_targets(rows, columns);
      const Results exact = run(test::as(DType::f64, logits), targets, DType::f64);
      const std::string name = std::to_string(begins.size()) + " parts " + std::string(to_string(dtype));
      expect_near_exact(in_parts(logits, targets, dtype, begins, pad), exact, dtype, name + " CPU");
      const Results there = gpu().run([&] { return in_parts(gpu()(logits), gpu()(targets), dtype, begins, pad); });
      expect_near_exact({gpu().host(there.statistics), gpu().host(there.loss), gpu().host(there.gradient)}, exact, dtype, name + " GPU");
    }
  }
}

// A part whose logits are all -infinity contributes nothing to the loss, in whatever order the parts are computed.
TEST_F(CrossEntropyTwins, PartsOfForbiddenLogits) {
  const i64 columns = 4000;
  const Tensor logits = test::random({2, columns}, DType::f32, 8, 3), targets = test::ints({3999, 0}, {2});
  for (i64 c = 0; c < 2000; ++c)
    logits.data<float>()[c] = logits.data<float>()[columns + 2000 + c] = -std::numeric_limits<float>::infinity();
  const Results exact = on_gpu(gpu(), logits, targets, DType::f32);
  const Results there = gpu().run([&] { return in_parts(gpu()(logits), gpu()(targets), DType::f32, {0, 2000}, 0); });
  expect_near_exact({gpu().host(there.statistics), gpu().host(there.loss), gpu().host(there.gradient)}, exact, DType::f32, "GPU");
}

TEST_F(CrossEntropyTwins, LargeAndForbiddenLogits) {
  const i64 columns = 5000;
  const float none = -std::numeric_limits<float>::infinity();
  const Tensor logits = test::random({2, columns}, DType::f32, 8, 3), targets = test::ints({4999, 4500}, {2});
  float* x = logits.data<float>();
  for (i64 c = 0; c < columns; ++c) x[c] += 30000;                                      // plain exponentials of these logits would overflow
  for (i64 c = 0; c < columns; ++c) x[columns + c] = c < 4100 ? none : x[columns + c];  // some threads see only logits of minus infinity
  const Results exact = run(test::as(DType::f64, logits), targets, DType::f64), got = on_gpu(gpu(), logits, targets, DType::f32);
  // The first row's logits are near 30000, but the differences between them are exact.
  expect_near_exact(got, exact, DType::f32, "large");
  for (i64 c = 0; c < 4100; ++c) EXPECT_EQ(test::at(got.gradient, columns + c), 0);
}

TEST_F(CrossEntropyTwins, ATargetBeyondTheVocabularyIsALossThatIsNoneAndAnErrorOfTheNextWait) {
  const Tensor logits = test::random({3, 40}, DType::f32, 9), targets = test::ints({39, 40, 1 << 30}, {3});
  const Results there = gpu().run([&] { return run(gpu()(logits), gpu()(targets), DType::f32); });
  EXPECT_TRUE(test::refusal([&] { gpu().host(there.loss); }).starts_with("[cross_entropy] expected an index in [0, 40), got "));
  const Results got{{}, gpu().host(there.loss), gpu().host(there.gradient)};
  for (i64 row = 0; row < 3; ++row) {
    EXPECT_EQ(std::isnan(test::at(got.loss, row)), row > 0);
    for (i64 c = 0; c < 40; ++c) EXPECT_EQ(std::isnan(test::at(got.gradient, row * 40 + c)), row > 0);
  }
}

TEST_F(CrossEntropyTwins, SumsInOrderAndCounts) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const i64 n : {1, 255, 1024, 2500}) {
      const Tensor x = test::random({n}, dtype, 10, 1e3), want = empty({1}, DType::f64), got = gpu().empty({1}, DType::f64);
      kernels::sum_in_order(x, 0.3, want);
      gpu().run([&] { kernels::sum_in_order(gpu()(x), 0.3, got); });
      EXPECT_TRUE(test::same_bits(gpu().host(got), want));
    }
  }
  EXPECT_EQ(gpu().run([&] { return kernels::counted_targets(gpu()(some_targets(10, 5))); }), 8);
  EXPECT_THROW(gpu().run([&] { return kernels::counted_targets(gpu()(test::ints({-1, -1}, {2}))); }), Error);
}

}  // namespace
}  // namespace spillway::cross_entropy_cuda_test
