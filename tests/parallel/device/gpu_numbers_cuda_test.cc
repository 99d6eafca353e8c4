// Tests settings that change numbers, on a GPU: bf16 gradients, frozen parameters, dropout, other masters and moments. Each setting gives
// different numbers, which are bitwise the same whichever tiers hold the tensors.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "parallel/device/gradient_rounding.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/support/gpu.h"

namespace spillway::test::gpu_numbers_cuda_test {
namespace {

using parallel::kTileElems;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

class GpuRounding : public GpuTest {};

TEST_F(GpuRounding, GivesTheBitsOfTheCpus) {
  for (const i64 tiles : {1, 2, 3, 7}) {
    const Tensor x = empty(Shape{tiles * kTileElems}, DType::f32);
    float* values = x.data<float>();
    for (i64 i = 0; i < x.elems(); ++i)
      values[i] = static_cast<float>(normal(RandomKey{5}, 0, static_cast<u64>(i))) * std::ldexp(1.0f, static_cast<int>(i % 60) - 40);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float special[] = {0, -0.0f, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 0x1p-130f, kInfinity, -kInfinity, std::bit_cast<float>(0xff800001)};
    std::copy(std::begin(special), std::end(special), values + x.elems() - 100);
    for (const DType into : {DType::f32, DType::bf16}) {
      const Tensor on_gpu = gpu()(x);
      gpu().run([&] { parallel::round_gradient_on_gpu(on_gpu.raw(), into, tiles); });
      const Tensor got = gpu().host(on_gpu);
      std::vector<std::byte> want(x.raw(), x.raw() + x.bytes());
      std::vector<double> sums(static_cast<size_t>(tiles));
      parallel::round_gradient(want.data(), into, sums);
      EXPECT_EQ(std::memcmp(got.raw(), want.data(), static_cast<size_t>(tiles * kTileElems * size_of(into))), 0) << tiles << " tiles";
    }
  }
}

const std::vector<Way>& variants() {
  const auto frozen = [](const char* name) {
    return [=](RunOptions& o) { o.freeze = [=](const nn::Parameter& p) { return p.name.find(name) != p.name.npos; }; };
  };
  static const std::vector<Way> all = {
      {"rounded", [](RunOptions& o) { o.round_gradients = true; }},
      {"rounded_bf16", [](RunOptions& o) { o.round_gradients = true, o.dtype = DType::bf16; }},
      {"frozen_attention", frozen("attn")},
      {"frozen_embedding", frozen("wte")},
      {"dropout", [](RunOptions& o) { o.model.embedding_dropout = 0.1, o.model.residual_dropout = 0.2, o.model.attention_dropout = 0.1; }},
      {"split_master", [](RunOptions& o) { o.dtype = DType::bf16, o.master = optim::Master::split; }},
      {"bf16_moments", [](RunOptions& o) { o.moments = optim::Moments::bf16; }},
      {"int8_moments", [](RunOptions& o) { o.moments = optim::Moments::int8, o.dtype = DType::bf16; }},
      {"f16",
       [](RunOptions& o) {
         o.dtype = DType::f16, o.loss_scale = {1024, 0}, o.loss_scale_interval = 1;
       }},
      {"f64", [](RunOptions& o) { o.dtype = DType::f64; }},
      {"sgd", [](RunOptions& o) { o.update = optim::SgdSettings{}; }},
      {"averaged", [](RunOptions& o) { o.average_decay = 0.9, o.dtype = DType::bf16; }},
      {"muon", [](RunOptions& o) { o.update = optim::MuonSettings{}; }},
      {"adafactor", [](RunOptions& o) { o.update = optim::AdafactorSettings{}, o.dtype = DType::bf16; }},
  };
  return all;
}

struct Where {
  Tier parameters, gradients, optimizer;
  OptimizerOverlap overlap;
  Order order;
  int deferred_sixteenths = 0;
  bool streams_steps = false;

  void set(RunOptions& o) const {
    o.parameters = parameters, o.gradients = gradients, o.optimizer = optimizer;
    o.overlap = overlap, o.order = order, o.deferred_sixteenths = deferred_sixteenths;
    o.streams_steps = streams_steps;
  }
};
constexpr Where kPlaces[] = {{Tier::device, Tier::host, Tier::host, OptimizerOverlap::backward, Order::micro_batch, 8},
                             {Tier::host, Tier::nvme, Tier::device, OptimizerOverlap::forward, Order::vertical},
                             {Tier::nvme, Tier::nvme, Tier::nvme, OptimizerOverlap::none, Order::micro_batch}};

// The optimizer's updates stream through the GPU: from host memory; and from nvme, with some of the data on the GPU.
constexpr Where kStreamed[] = {{Tier::host, Tier::host, Tier::host, OptimizerOverlap::backward, Order::vertical, 8, true},
                               {Tier::device, Tier::nvme, Tier::nvme, OptimizerOverlap::forward, Order::micro_batch, 0, true}};

class GpuVariants : public GpuRuns, public testing::WithParamInterface<size_t> {};

// Each variant runs with kTurns of the placements (which tier holds which tensors), chosen in turn. Under a sanitizer, which is slow,
// kTurns is smaller.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kTurns = 1;
#else
constexpr size_t kTurns = 2;
#endif
TEST_P(GpuVariants, GiveTheSameBitsAnywhere) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = 1;
  o.sequence_length = 4;
  variants()[GetParam()].change(o);
  const RunResult want = train(o);
  for (size_t turn = 0; turn < kTurns; ++turn) {
    kPlaces[(GetParam() + turn) % std::size(kPlaces)].set(o);
    o.recompute = (GetParam() + turn) % 2 == 1;
    expect_same_run(train(o), want);
  }
  kStreamed[GetParam() % std::size(kStreamed)].set(o);
  expect_same_run(train(o), want);
}
INSTANTIATE_TEST_SUITE_P(All, GpuVariants, testing::Range(size_t{0}, variants().size()),
                         [](const auto& cell) { return variants()[cell.param].name; });

TEST_F(GpuRuns, GradientsBeyondF16SkipSteps) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = 1;
  o.dtype = DType::f16;
  o.loss_scale = {0x1p26, 0};
  o.sequence_length = 4;
  const RunResult want = train(o);
  EXPECT_TRUE(want.steps[0].skipped && want.steps[1].skipped);
  EXPECT_TRUE(std::isfinite(want.losses[1]));
  for (const Where& w : {kPlaces[0], kPlaces[1], kPlaces[2], kStreamed[0], kStreamed[1]}) {
    w.set(o);
    expect_same_numbers(train(o), want);
  }
}

// Compares rounded gradients with exact ones. Rounding to 8 significant bits changes a gradient, and so the norm, by at most 2^-9.
TEST_F(GpuRuns, RoundedGradientsAreNearExactOnes) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = 1;
  o.steps = 1;
  const RunResult exact = train(o);
  o.round_gradients = true;
  const RunResult rounded = train(o);
  EXPECT_EQ(rounded.losses, exact.losses);
  EXPECT_NE(rounded.norms, exact.norms);
  EXPECT_NEAR(rounded.norms[0], exact.norms[0], 0x1p-9 * exact.norms[0] * (1 + 1e-6));
}

}  // namespace
}  // namespace spillway::test::gpu_numbers_cuda_test
