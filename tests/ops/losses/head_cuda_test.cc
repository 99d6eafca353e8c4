// Compares the fused output head on a GPU with fp64 on the CPU, at vocabularies and widths without convenient divisors. It tests how
// the head is split into pieces, how they are aligned, and that neither keeping logits nor a backward in two parts changes a bit.
#include <algorithm>

#include "device/arena.h"
#include "kernels/losses/cross_entropy.h"
#include "ops/losses/loss.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::head_cuda_test {
namespace {

class HeadOnGpu : public test::GpuTest {};

constexpr double kFactor = 0.25;

struct GpuSink final : autograd::GradientSink {
  Tensor gradient;
  Tensor target(u32, u8, const Shape& shape, DType dtype) override { return gradient = empty(shape, dtype); }
  void done(u32, u8) override {}
};

struct Results {
  Tensor loss, dx, dw;
};

struct Case {
  i64 rows, columns, vocabulary;
  ops::LogitsMemory memory;
};

Results run(const Case& c, const Tensor& x, const Tensor& w, const Tensor& targets, bool in_parts) {
  GpuSink sink;
  autograd::Tape tape(&sink);
  const autograd::Variable in = tape.input(x);
  const autograd::Variable loss = ops::linear_cross_entropy(in, tape.parameter(w, 0), targets, kFactor, c.memory);
  const Stream cpu{.memory = &MemoryPool::heap()};
  const auto one = [&] {
    const StreamScope scope(cpu);
    constexpr double kOne = 1;
    return tensor_of<double>(std::span(&kOne, 1), Shape{});
  }();
  if (in_parts) {
    tape.backward_input(loss, one);
    tape.backward_weight();
  } else {
    tape.backward(loss, one);
  }
  return {loss.value, tape.take_gradient(in), sink.gradient};
}

struct Inputs {
  Tensor x, w, targets;
  Inputs(const Case& c, DType dtype)
      : x(test::random({c.rows, c.columns}, dtype, 1)), w(test::random({c.vocabulary, c.columns}, dtype, 2, 0.3)) {
    std::vector<i32> all;
    for (i64 row = 0; row < c.rows; ++row)
      all.push_back(row % 4 == 3 ? -100 : static_cast<i32>(row == 0 ? c.vocabulary - 1 : row * 7919 % c.vocabulary));
    targets = test::ints(all, {c.rows});
  }
};

Results on_gpu(test::Gpu& gpu, const Case& c, const Inputs& in, bool in_parts = false) {
  const Results r = gpu.run([&] { return run(c, gpu(in.x), gpu(in.w), gpu(in.targets), in_parts); });
  return {gpu.host(r.loss), gpu.host(r.dx), gpu.host(r.dw)};
}

bool same(const Results& a, const Results& b) {
  return test::same_bits(a.loss, b.loss) && test::same_bits(a.dx, b.dx) && test::same_bits(a.dw, b.dw);
}

// Expects results near the fp64 ones. Gradients of logits lie between -1 and 1 and are rounded once to the type, with an error u of half
// an ulp. A sum of n of them with factors of size 0.3 has an error of about 0.3 sqrt(n) u; ten times that is allowed. The fp32 sums and
// the rounding of the result add to it.
void expect_near_exact(const Results& got, const Results& exact, const Case& c, DType dtype, const std::string& what) {
  const double u = test::half_ulp(dtype), wide = 100 * test::half_ulp(wide_dtype(dtype));
  const double narrow = is_half(dtype) ? u : 0;
  test::expect_near(got.loss, exact.loss, wide, wide, what + " loss");
  test::expect_near(got.dx, exact.dx, wide + narrow, kFactor * (narrow + wide) * 2, what + " dx");
  test::expect_near(got.dw, exact.dw, wide, kFactor * (narrow + wide) * 10 * std::sqrt(static_cast<double>(c.rows)), what + " dw");
}

constexpr Case kCases[] = {
    {1, 8, 50257 / 8, {}},    // a head with one row and an odd vocabulary
    {3, 17, 9001, {1, 1}},    // a head with the fewest columns per piece: three pieces, padding beyond a multiple of 64, and an odd width
    {70, 8, 41, {}},          // a head smaller than one aligned piece
    {2, 8, 128256 / 16, {}},  // a head whose vocabulary is a multiple of 16 but of no larger power of two
    {2, 8, 8192, {1, 1}},     // a head whose vocabulary divides into whole pieces
};

TEST_F(HeadOnGpu, NearFp64AtAnyVocabulary) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Inputs in(c, dtype);
      Case plain = c;
      plain.memory = {};
      const Results exact = run(plain, test::as(DType::f64, in.x), test::as(DType::f64, in.w), in.targets, false);
      const std::string name = std::to_string(c.vocabulary) + " " + std::string(to_string(dtype));
      expect_near_exact(on_gpu(gpu(), c, in), exact, c, dtype, name);
    }
  }
}

TEST_F(HeadOnGpu, KeptOrComputedAgainAtOnceOrInTwoParts) {
  const Case kept{3, 8, 9001, {1, 256 * kMiB}}, again{3, 8, 9001, {1, 1}};
  const Inputs in(kept, DType::bf16);
  const Results once = on_gpu(gpu(), kept, in);
  EXPECT_TRUE(same(once, on_gpu(gpu(), kept, in, true)));
  EXPECT_TRUE(same(once, on_gpu(gpu(), again, in)));
  EXPECT_TRUE(same(once, on_gpu(gpu(), again, in, true)));
}

// Operands, results and their rows must begin at multiples of 16 bytes, so that a product loads and stores 16 bytes at a time.
TEST_F(HeadOnGpu, EveryProductIsAligned) {
  for (const Case& c : {Case{8, 16, 50257 / 8, {}}, Case{8, 16, 9001, {1, 1}}}) {
    const Inputs in(c, DType::bf16);
    const test::GpuLog log;
    on_gpu(gpu(), c, in);
    if (!log.kept()) GTEST_SKIP() << "a GPU keeps no list of its products";
    i64 columns = 0;
    for (const test::GpuLog::Product& p : log.products()) {
      for (const i64 alignment : p.alignment) EXPECT_EQ(alignment, 16) << p.m << " " << p.n << " " << p.k;
      for (const i64 extent : {p.m, p.n, p.k}) EXPECT_EQ(extent % 8, 0) << p.m << " " << p.n << " " << p.k;
      if (p.k != c.rows || p.m != c.columns) continue;
      columns += p.n;
      EXPECT_EQ(p.adds, 0) << "the weight's gradient is one product over all rows";
    }
    EXPECT_EQ(columns, round_up(c.vocabulary, 64)) << "of the weight's gradient";
  }
}

// If logits are kept, they are computed once, so a piece of columns needs three products. Otherwise it needs four.
TEST_F(HeadOnGpu, ProductsOfAPiece) {
  for (const bool keeps : {true, false}) {
    const Case c{8, 8, 8192, {1, keeps ? 256 * kMiB : 1}};
    const Inputs in(c, DType::bf16);
    const test::GpuLog log;
    on_gpu(gpu(), c, in);
    if (!log.kept()) GTEST_SKIP() << "a GPU keeps no list of its products";
    EXPECT_EQ(std::ssize(log.products()), 2 * (keeps ? 3 : 4));
  }
}

// A dry run on the meta device that stands for a GPU uses as many bytes as a run on the GPU. The planner relies on this.
TEST_F(HeadOnGpu, TakesTheBytesOfItsDryRun) {
  for (const Case& c : kCases) {
    const Inputs in(c, DType::bf16);
    Arena dry;
    {
      const Stream stream{Device::meta(Device::Kind::cuda), nullptr, &dry};
      const StreamScope scope(stream);
      run(c, empty(in.x.shape(), DType::bf16), empty(in.w.shape(), DType::bf16), empty(in.targets.shape(), DType::int32), false);
    }
    const Tensor x = gpu()(in.x), w = gpu()(in.w), targets = gpu()(in.targets), slab = gpu().empty({dry.peak_bytes()}, DType::uint8);
    Arena real(slab.raw(), dry.peak_bytes());
    Stream stream = gpu().stream();
    stream.memory = &real;
    const StreamScope scope(stream);
    {
      const Tensor x_copy = to_current_device(x), w_copy = to_current_device(w), targets_copy = to_current_device(targets);
      run(c, x_copy, w_copy, targets_copy, false);
      cuda_check(cudaStreamSynchronize(stream.queue), "cudaStreamSynchronize");
    }
    EXPECT_EQ(real.peak_bytes(), dry.peak_bytes()) << c.vocabulary;
  }
}

}  // namespace
}  // namespace spillway::head_cuda_test
