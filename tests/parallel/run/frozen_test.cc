// Tests that frozen parameters do not change, and that the others get the gradients that they would have had. No gradient is computed for
// blocks below the first one with a trained parameter, and none of this depends on the tiers that hold the tensors.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::frozen_test {
namespace {

using parallel::Op;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

bool contains(const nn::Parameter& p, const char* part) { return p.name.find(part) != std::string::npos; }
// Freezes biases and the tied embedding, so that every block has frozen and trained parameters.
bool some_everywhere(const nn::Parameter& p) { return contains(p, "bias") || contains(p, "wte"); }
// Freezes everything below the last block: the embeddings and the first two of three blocks.
bool bottom(const nn::Parameter& p) { return contains(p, "wte") || contains(p, "wpe") || contains(p, ".h.0.") || contains(p, ".h.1."); }

RunOptions frozen_run(bool (*freeze)(const nn::Parameter&), i64 micro_batches = 1) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 3;
  o.sequence_length = 16;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.micro_batches = micro_batches;
  o.freeze = freeze;
  return o;
}

TEST(Frozen, OthersGetTheGradientsTheyWouldHaveHad) {
  for (const auto freeze : {some_everywhere, bottom}) {
    RunOptions o = frozen_run(freeze);
    o.steps = 1;
    o.gradient_clipping = 0;
    const RunResult got = train(o);
    o.freeze = nullptr;
    const RunResult all = train(o);
    EXPECT_EQ(got.losses, all.losses);
    EXPECT_LT(got.norms[0], all.norms[0]);
    const nn::Sequential model = models::build(o.model, o.dtype);
    int frozen = 0;
    for (const auto& p : model.parameters) {
      std::vector<double> initial(static_cast<size_t>(p->elems()));
      nn::initial_values(*p, 1, 0, initial);
      for (double& x : initial) x = static_cast<float>(x);
      frozen += freeze(*p);
      EXPECT_EQ(got.m[p->id], freeze(*p) ? std::vector<double>() : all.m[p->id]) << p->name;
      EXPECT_EQ(got.weights[p->id], freeze(*p) ? initial : all.weights[p->id]) << p->name;
    }
    EXPECT_GE(frozen, 5);
  }
}

TEST(Frozen, NothingFlowsBackBeyondTheFirstTrainedBlock) {
  RunOptions o = frozen_run(bottom);
  o.steps = 1;
  const RunResult got = train(o);
  const auto backwards = [](const RunResult& r) {
    return std::count_if(r.plan.train.head.begin(), r.plan.train.head.end(), [](const auto& i) { return i.op == Op::Backward; });
  };
  EXPECT_EQ(got.plan.layout.first_trained_block, 3);  // the blocks before block 3 are the embedding and two layers
  EXPECT_EQ(backwards(got), std::ssize(got.plan.layout.blocks) - 3);
  o.freeze = nullptr;
  const RunResult all = train(o);
  EXPECT_EQ(backwards(all), std::ssize(all.plan.layout.blocks));
  EXPECT_LT(got.plan.activation_slab_bytes, all.plan.activation_slab_bytes);
}

struct Where {
  Tier parameters, gradients, optimizer, activations;
  OptimizerOverlap overlap;
  Order order;
  bool recompute;
};
constexpr Where kPlaces[] = {
    {Tier::host, Tier::host, Tier::host, Tier::host, OptimizerOverlap::none, Order::micro_batch, false},
    {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme, OptimizerOverlap::backward, Order::vertical, false},
    {Tier::nvme, Tier::host, Tier::nvme, Tier::device, OptimizerOverlap::forward, Order::micro_batch, true},
    {Tier::device, Tier::device, Tier::nvme, Tier::device, OptimizerOverlap::backward, Order::micro_batch, true},
    {Tier::device, Tier::host, Tier::host, Tier::nvme, OptimizerOverlap::forward, Order::vertical, true},
};

class FrozenAnywhere : public testing::TestWithParam<std::tuple<bool, i64>> {};

TEST_P(FrozenAnywhere, AreTheSameBits) {
  const auto [everywhere, micro_batches] = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunOptions plain = frozen_run(everywhere ? some_everywhere : bottom, micro_batches);
    plain.dtype = dtype;
    plain.gradient_clipping = 2;  // with this clipping threshold some steps are redone
    const RunResult want = train(plain);
    EXPECT_TRUE(std::ranges::any_of(want.steps, &parallel::StepResult::clipped)) << "nothing is redone";
    for (const Where& w : kPlaces) {
      RunOptions o = plain;
      o.parameters = w.parameters, o.gradients = w.gradients, o.optimizer = w.optimizer, o.activations = w.activations;
      o.overlap = w.overlap, o.order = w.order, o.recompute = w.recompute;
      o.threads = 2;
      expect_same_run(train(o), want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places, FrozenAnywhere, testing::Combine(testing::Bool(), testing::Values(1, 3)), [](const auto& cell) {
  return std::string(std::get<0>(cell.param) ? "some_everywhere" : "bottom") + "_K" + std::to_string(std::get<1>(cell.param));
});

}  // namespace
}  // namespace spillway::test::frozen_test
