// Tests a mixture of experts on a GPU, including the router's choice and gradients. Its results are close to those in fp64 on the CPU, and
// bitwise the same with a backward in one or two parts. It uses as much memory as its dry run, and makes no copy to the host that the CPU
// would have to wait for.
#include <map>

#include "device/arena.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/products/linear.h"
#include "tests/support/gpu.h"
#include "tests/support/gpu_log.h"
#include "tests/support/numbers.h"

namespace spillway::experts_cuda_test {
namespace {

using autograd::Variable;

constexpr i64 kTokens = 70, kExperts = 6, kChosen = 2, kWidth = 40, kInner = 24;

struct GpuSink final : autograd::GradientSink {
  std::map<u32, Tensor> gradients;
  Tensor target(u32 parameter, u8, const Shape& shape, DType dtype) override { return gradients[parameter] = empty(shape, dtype); }
  void done(u32, u8) override {}
};

// Returns x, dy and the router's weights, followed by gate, up and down of each expert.
std::vector<Tensor> inputs(DType dtype) {
  std::vector<Tensor> all{test::random({kTokens, kWidth}, dtype, 1), test::random({kTokens, kWidth}, dtype, 2),
                          test::random({kExperts, kWidth}, dtype, 3)};
  for (u64 e = 0; e < kExperts; ++e) {
    for (const u64 which : {0, 1, 2})
      all.push_back(test::random(which < 2 ? Shape{kInner, kWidth} : Shape{kWidth, kInner}, dtype, 10 + 3 * e + which, 0.2));
  }
  return all;
}

// Runs a mixture of experts and returns y, dx and the gradients of all parameters.
std::vector<Tensor> run(const std::vector<Tensor>& in, bool in_parts) {
  GpuSink sink;
  autograd::Tape tape(&sink);
  const Variable x = tape.input(in[0]);
  std::vector<ops::Weight> weights[3];
  for (u32 i = 3; i < in.size(); ++i) weights[i % 3].push_back(tape.parameter(in[i], i));
  const Variable logits = ops::linear(x, tape.parameter(in[2], 2), {}, ops::WeightLayout::out_in);
  const ops::Routed routed = ops::router(logits, kChosen, {.normalised = true});
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, kExperts);
  const Variable each = ops::to_experts(x, rows);
  const Variable h = ops::swiglu(ops::expert_linear(each, weights[0], rows), ops::expert_linear(each, weights[1], rows));
  const Variable y = ops::from_experts(ops::expert_linear(h, weights[2], rows), routed.weights_NK, rows);
  if (in_parts) {
    tape.backward_input(y, in[1]);
    tape.backward_weight();
  } else {
    tape.backward(y, in[1]);
  }
  std::vector<Tensor> results{y.value, tape.take_gradient(x)};
  for (const auto& [id, gradient] : sink.gradients) results.push_back(gradient);
  return results;
}

class MixtureOnGpu : public test::GpuTest {
 protected:
  std::vector<Tensor> there(const std::vector<Tensor>& in) {
    std::vector<Tensor> all;
    for (const Tensor& t : in) all.push_back(gpu()(t));
    return all;
  }
  std::vector<Tensor> results(const std::vector<Tensor>& in, bool in_parts) {
    std::vector<Tensor> all = gpu().run([&] { return run(there(in), in_parts); });
    for (Tensor& t : all) t = gpu().host(t);
    return all;
  }
};

// Compares f32 and f64 only: in bf16 and f16 a rounded logit may change the choice of an expert. Other tests compare those types.
TEST_F(MixtureOnGpu, NearTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::vector<Tensor> in = inputs(dtype), got = results(in, false);
    std::vector<Tensor> exact;
    for (const Tensor& t : in) exact.push_back(test::as(DType::f64, t));
    const std::vector<Tensor> want = run(exact, false);
    const double error = 400 * test::half_ulp(dtype);
    for (size_t i = 0; i < want.size(); ++i) test::expect_near(got[i], want[i], error, error, "result " + std::to_string(i));
  }
}

TEST_F(MixtureOnGpu, TheSameBitsAtOnceAndInTwoParts) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::vector<Tensor> in = inputs(dtype), once = results(in, false), parts = results(in, true);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(test::same_bits(once[i], parts[i])) << i;
  }
}

TEST_F(MixtureOnGpu, TakesTheBytesOfItsDryRun) {
  const std::vector<Tensor> in = inputs(DType::bf16);
  Arena dry;
  {
    const Stream stream{Device::meta(Device::Kind::cuda), nullptr, &dry};
    const StreamScope scope(stream);
    std::vector<Tensor> shapes;
    for (const Tensor& t : in) shapes.push_back(empty(t.shape(), t.dtype()));
    run(shapes, false);
  }
  const std::vector<Tensor> given = there(in);
  const Tensor slab = gpu().empty({dry.peak_bytes()}, DType::uint8);
  Arena real(slab.raw(), dry.peak_bytes());
  Stream stream = gpu().stream();
  stream.memory = &real;
  const StreamScope scope(stream);
  {
    std::vector<Tensor> copies;
    for (const Tensor& t : given) copies.push_back(to_current_device(t));
    run(copies, false);
    cuda_check(cudaStreamSynchronize(stream.queue), "cudaStreamSynchronize");
  }
  EXPECT_EQ(real.peak_bytes(), dry.peak_bytes());
}

TEST_F(MixtureOnGpu, FewLaunchesAndNothingComesToTheHost) {
  const std::vector<Tensor> given = there(inputs(DType::bf16));
  const StreamScope scope(gpu().stream());
  run(given, false);  // in this first run the library chooses algorithms for its products, so the log below shows only the second run
  const test::GpuLog log;
  const std::vector<Tensor> kept = run(given, false);
  cuda_check(cudaStreamSynchronize(gpu().stream().queue), "cudaStreamSynchronize");
  if (!log.kept()) return;
  EXPECT_GT(log.launches(), 20);
  EXPECT_LT(log.launches(), 6 * 9) << "a launch for each of the nine products, not for each of the six experts too";
  EXPECT_EQ(log.count("cudaMemcpyAsync") + log.count("cudaMemcpy2DAsync"), 0);
}

}  // namespace
}  // namespace spillway::experts_cuda_test
