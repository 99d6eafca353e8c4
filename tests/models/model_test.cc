#include "models/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "device/arena.h"
#include "device/memory_pool.h"
#include "models/presets.h"
#include "models/rotary.h"
#include "models/weights.h"
#include "ops/losses/loss.h"
#include "tensor/create.h"
#include "tests/models/support_reference.h"

namespace spillway::models::model_test {
namespace {

using nn::Initializer;

const nn::Parameter& named(const nn::Sequential& model, const std::string& name) {
  for (const auto& p : model.parameters) {
    if (p->name == name) return *p;
  }
  throw std::runtime_error("no parameter " + name);
}

bool has(const nn::Sequential& model, const std::string& name) {
  return std::ranges::any_of(model.parameters, [&](const auto& p) { return p->name == name; });
}

MicroBatch batch_of(const ModelConfig& config, i64 rows, i64 positions, i64 first_sample = 0) {
  std::vector<i32> tokens, targets, places;
  for (i64 i = 0; i < rows * positions; ++i) {
    const i64 sample = first_sample + i / positions;
    tokens.push_back(static_cast<i32>((7 * i + 13 * sample) % config.vocabulary));
    targets.push_back(static_cast<i32>((11 * i + 3) % config.vocabulary));
    places.push_back(static_cast<i32>(i % positions));
  }
  const Shape shape{rows, positions};
  return {tensor_of<i32>(tokens, shape), tensor_of<i32>(targets, shape), tensor_of<i32>(places, shape), first_sample, rows * positions};
}

TEST(Build, GivesOneBlockALayerBetweenEmbeddingAndHead) {
  const nn::Sequential gpt2 = build(preset("gpt2-tiny"), DType::f32);
  EXPECT_EQ(gpt2.blocks.size(), 6u);
  EXPECT_EQ(gpt2.parameters[0]->name, "transformer.wte.weight");
  EXPECT_EQ(gpt2.uses(0), 2) << "embedding and head share it";
  EXPECT_FALSE(has(gpt2, "lm_head.weight"));
  const nn::Sequential llama = build(preset("llama-tiny"), DType::f64);
  EXPECT_EQ(llama.blocks.size(), 6u);
  EXPECT_EQ(llama.uses(0), 1);
  EXPECT_EQ(llama.parameters.back()->name, "lm_head.weight");
  for (const auto& p : llama.parameters) EXPECT_EQ(p->dtype, DType::f64);
}

TEST(Build, BiasesAppearWhereTheConfigurationSays) {
  ModelConfig config = preset("llama-tiny");
  EXPECT_FALSE(has(build(config, DType::f32), "model.layers.0.self_attn.o_proj.bias"));
  config.attention_bias = config.output_bias = config.mlp_bias = true;
  const nn::Sequential model = build(config, DType::f32);
  for (const char* name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    EXPECT_TRUE(has(model, "model.layers.3." + std::string(name) + ".bias")) << name;
  }
  EXPECT_EQ(named(model, "model.layers.0.self_attn.k_proj.bias").shape, (Shape{64}));
}

TEST(Build, InitialisesAsHuggingFaceDoes) {
  const nn::Sequential gpt2 = build(preset("gpt2-124m"), DType::f32);
  EXPECT_EQ(named(gpt2, "transformer.wpe.weight").init.std, 0.02);
  EXPECT_EQ(named(gpt2, "transformer.h.5.attn.c_attn.weight").init.std, 0.02);
  for (const char* name : {"transformer.h.5.attn.c_proj.weight", "transformer.h.5.mlp.c_proj.weight"}) {
    EXPECT_DOUBLE_EQ(named(gpt2, name).init.std, 0.02 / std::sqrt(24.0)) << name;
  }
  EXPECT_EQ(named(gpt2, "transformer.h.5.attn.c_proj.bias").init.kind, Initializer::Kind::zeros);
  EXPECT_EQ(named(gpt2, "transformer.ln_f.weight").init.kind, Initializer::Kind::ones);
  const nn::Sequential llama = build(preset("llama3-8b"), DType::f32);
  for (const auto& p : llama.parameters) {
    EXPECT_EQ(p->init.kind, p->shape.rank() == 1 ? Initializer::Kind::ones : Initializer::Kind::normal) << p->name;
    if (p->shape.rank() == 2) {
      EXPECT_EQ(p->init.std, 0.02) << p->name;
    }
  }
}

TEST(Build, RefusesOtherTypes) { EXPECT_THROW(build(preset("gpt2-tiny"), DType::int32), Error); }

// The expected frequencies are those of transformers' _compute_llama3_parameters in fp64: theta
// 10000, width 16, factor 8, low_freq_factor 1, high_freq_factor 4, original context length 32.
TEST(Rope, FrequenciesOfTheThreeBranches) {
  ModelConfig config = preset("llama-tiny");
  config.head_dim = 16;
  const auto plain = rotary_of(config, 0).frequencies;
  ASSERT_EQ(plain.size(), 8u);
  EXPECT_DOUBLE_EQ(plain[0], 1);
  EXPECT_DOUBLE_EQ(plain[4], 0.01);
  config.rope_scaling = RopeScaling{8, 1, 4, 32};
  const auto scaled = rotary_of(config, 0).frequencies;
  EXPECT_DOUBLE_EQ(scaled[0], plain[0]) << "wavelength 6.3 is below 8: kept";
  EXPECT_DOUBLE_EQ(scaled[7], plain[7] / 8) << "wavelength beyond 32: stretched";
  // The wavelength 2 pi / 0.3162 = 19.87 is between the two limits, so the share (32/19.87 - 1) / 3 of the frequency is kept.
  const double keep = (32 * plain[1] / (2 * M_PI) - 1) / 3;
  EXPECT_GT(keep, 0);
  EXPECT_LT(keep, 1);
  EXPECT_NEAR(scaled[1], plain[1] * (keep + (1 - keep) / 8), 1e-15);
}

struct FromScratch {
  FromScratch(ModelConfig c, u64 seed) : config(std::move(c)), model(build(config, DType::f32)), weights(model) {
    fill(model, ScratchWeights(seed));
  }
  double loss(const MicroBatch& batch, nn::Mode mode, u64 seed = 1) {
    nn::Context context;
    context.mode = mode;
    context.batch = &batch;
    context.random = RandomKey{seed};
    return nn::run(model, context).value.item();
  }
  ModelConfig config;
  nn::Sequential model;
  nn::EagerParameters weights;
};

// A model with new weights has a mean loss near ln V for V tokens, off by about half the variance of the logits.
TEST(FromScratchModel, StartsNearTheUniformLoss) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    FromScratch scratch(preset(name), 1337);
    const MicroBatch batch = batch_of(scratch.config, 2, 32);
    EXPECT_NEAR(scratch.loss(batch, nn::Mode::evaluate) / 64, std::log(256.0), 0.15) << name;
  }
}

class DropoutPlace : public ::testing::TestWithParam<double ModelConfig::*> {};

TEST_P(DropoutPlace, ActsInTrainingOnlyByKeyAndSample) {
  ModelConfig config = preset("gpt2-tiny");
  config.layers = 2;
  FromScratch plain(config, 5);
  config.*GetParam() = 0.2;
  FromScratch dropping(config, 5);
  const MicroBatch batch = batch_of(config, 2, 16);
  const double undropped = plain.loss(batch, nn::Mode::train);
  EXPECT_EQ(dropping.loss(batch, nn::Mode::evaluate), undropped);
  const double dropped = dropping.loss(batch, nn::Mode::train);
  EXPECT_NE(dropped, undropped);
  EXPECT_EQ(dropped, dropping.loss(batch, nn::Mode::train)) << "a recomputed block replays its mask";
  EXPECT_NE(dropped, dropping.loss(batch, nn::Mode::train, 2)) << "another run key";
  MicroBatch later = batch;
  later.first_sample = 100;
  EXPECT_NE(dropped, dropping.loss(later, nn::Mode::train)) << "another sample of the run";
}

INSTANTIATE_TEST_SUITE_P(Gpt2, DropoutPlace,
                         ::testing::Values(&ModelConfig::embedding_dropout, &ModelConfig::residual_dropout,
                                           &ModelConfig::attention_dropout));

TEST(Dropout, DoesNotDependOnTheCutIntoMicroBatches) {
  ModelConfig config = preset("llama-tiny");
  config.layers = 1;
  config.attention_dropout = 0.3;
  FromScratch scratch(config, 5);
  const double whole = scratch.loss(batch_of(config, 2, 16), nn::Mode::train);
  MicroBatch whole_batch = batch_of(config, 2, 16);
  double parts = 0;
  for (i64 row = 0; row < 2; ++row) {
    const auto rows = [&](const Tensor& t) { return t.slice(0, row, row + 1); };
    const MicroBatch part{rows(whole_batch.tokens_BT), rows(whole_batch.targets_BT), rows(whole_batch.positions_BT), row, 16};
    parts += scratch.loss(part, nn::Mode::train);
  }
  // The tolerance allows 32 losses of about 5.5, each accurate to a few units of
  // 2^-24, since matrix products with another number of rows may round differently.
  EXPECT_NEAR(parts, whole, 1e-3);
  MicroBatch wrong = batch_of(config, 2, 16);
  wrong.first_sample = 1;
  EXPECT_GT(std::abs(scratch.loss(wrong, nn::Mode::train) - whole), 1e-3) << "the check can fail";
}

// Runs forward and backward of one training step with all memory from `arena`, and returns the arena's peak in bytes.
i64 step_in(Arena& arena, Device device, const ModelConfig& config, DType dtype) {
  const Stream stream{device, nullptr, &arena};
  const StreamScope scope(stream);
  const nn::Sequential model = build(config, dtype);
  nn::EagerParameters weights(model);
  if (!device.is_meta()) fill(model, ScratchWeights(1));
  const Shape shape{2, 24};
  MicroBatch batch{zeros(shape, DType::int32), zeros(shape, DType::int32), zeros(shape, DType::int32), 0, 48};
  autograd::Tape tape(&weights);
  nn::Context context;
  context.batch = &batch;
  context.tape = &tape;
  const nn::Variable loss = nn::run(model, context);
  loss.backward();
  for (const auto& p : model.parameters) EXPECT_TRUE(weights.gradient(p->id).defined()) << p->name;
  return arena.peak_bytes();
}

TEST(MetaDevice, ADryRunTellsTheExactBytes) {
  for (const auto& [name, dtype] :
       {std::pair("gpt2-tiny", DType::f32), {"llama-tiny", DType::f32}, {"gpt2-tiny", DType::bf16}, {"llama-tiny", DType::bf16}}) {
    SCOPED_TRACE(std::string(name) + " " + std::string(to_string(dtype)));
    ModelConfig config = preset(name);
    config.attention_dropout = config.residual_dropout = config.embedding_dropout = 0.1;
    Arena without_memory;
    const i64 planned = step_in(without_memory, Device::meta(), config, dtype);
    const Allocation slab = MemoryPool::heap().allocate(planned, "test slab");
    Arena exact(slab.data(), planned);
    EXPECT_EQ(step_in(exact, Device::cpu(), config, dtype), planned);
    Arena short_by_a_piece(slab.data(), planned - kAllocationAlignment);
    EXPECT_THROW(step_in(short_by_a_piece, Device::cpu(), config, dtype), Error);
  }
}

// All logits at once are those that sampling computes position by position, soft caps included, and give the loss.
TEST(AllLogits, AreThoseOfSamplingAndOfTheLoss) {
  ModelConfig capped = preset("llama-tiny");
  capped.logit_softcap = 0.5;
  for (const ModelConfig& config : {preset("gpt2-tiny"), preset("llama-tiny"), capped}) {
    FromScratch scratch(config, 1);
    const MicroBatch batch = batch_of(scratch.config, 2, 5);
    autograd::Tape tape(&scratch.weights);
    nn::Context context;
    context.mode = nn::Mode::evaluate, context.batch = &batch, context.tape = &tape;
    context.all_logits = true;
    const nn::Variable logits = nn::run(scratch.model, context);
    ASSERT_EQ(logits.shape(), (Shape{2, 5, scratch.config.vocabulary}));
    nn::Context sampling;
    sampling.mode = nn::Mode::generate, sampling.batch = &batch;
    for (sampling.logits_position = 0; sampling.logits_position < 5; ++sampling.logits_position) {
      const i64 t = sampling.logits_position;
      const std::vector<double> all = values_of(logits.value.slice(1, t, t + 1)), one = values_of(nn::run(scratch.model, sampling).value);
      EXPECT_THAT(all, testing::Pointwise(testing::DoubleNear(1e-5), one)) << t;
    }
    const nn::Variable loss = ops::cross_entropy_sum(logits, batch.targets_BT, 1);
    EXPECT_NEAR(loss.value.item(), scratch.loss(batch, nn::Mode::evaluate), 1e-4);
    loss.backward();
    for (const auto& p : scratch.model.parameters) EXPECT_TRUE(scratch.weights.gradient(p->id).defined()) << p->name;
  }
}

TEST(Generate, RefusesAPositionOutsideTheSequence) {
  FromScratch scratch(preset("gpt2-tiny"), 1);
  const MicroBatch batch = batch_of(scratch.config, 1, 8);
  nn::Context context;
  context.mode = nn::Mode::generate;
  context.batch = &batch;
  EXPECT_EQ(nn::run(scratch.model, context).shape(), (Shape{1, 256}));
  context.logits_position = 8;
  EXPECT_THROW(nn::run(scratch.model, context), Error);
}

}  // namespace
}  // namespace spillway::models::model_test
