// Compares whole models with PyTorch and transformers: logits, loss and every gradient, in fp32 and fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/memory_pool.h"
#include "nn/key_value_cache.h"
#include "tests/models/support_reference.h"

namespace spillway::reference_test {
namespace {

using test::Eager;
using test::Reference;
using test::worst_excess;

struct Case {
  std::string model;
  DType dtype;
};

// Tolerances for fp64 allow other orders of sums: values are below 10, and measured differences are below
// 1e-14. In fp32 the measured differences of logits, loss and gradients are below 2e-6, 3e-7 and 2e-7.
struct Tolerance {
  double logits, loss, gradients, norm_relative;
};
Tolerance tolerance(DType dtype) { return dtype == DType::f64 ? Tolerance{1e-12, 1e-12, 1e-12, 1e-12} : Tolerance{1e-5, 2e-6, 1e-6, 1e-5}; }

class AgainstReference : public ::testing::TestWithParam<Case> {
 protected:
  Reference reference{GetParam().model, GetParam().dtype};
  Eager eager{GetParam().model, GetParam().dtype};
  Tolerance allowed = tolerance(GetParam().dtype);

  void expect_loss(double mean, const std::string& name) {
    const double want = reference.value(name);
    EXPECT_NEAR(mean, want, allowed.loss + (GetParam().dtype == DType::f64 ? 0 : 1e-5 * want)) << name;
  }
  void expect_gradients(const std::string& prefix) {
    for (const auto& p : eager.model.parameters) {
      if (p->frozen) continue;
      EXPECT_LE(worst_excess(eager.gradient(p->name), reference.values(prefix + p->name), allowed.gradients, 0), 0) << prefix << p->name;
    }
  }
  double gradient_norm() {
    double squares = 0;
    for (const auto& p : eager.model.parameters) {
      if (p->frozen) continue;
      for (double g : eager.gradient(p->name)) squares += g * g;
    }
    return std::sqrt(squares);
  }
};

TEST_P(AgainstReference, LogitsOfEveryPosition) {
  const MicroBatch batch = reference.batch("input_ids", "labels");
  const std::vector<double> want = reference.values("logits");
  const i64 B = batch.tokens_BT.size(0), T = batch.tokens_BT.size(1), V = eager.config.vocabulary;
  for (i64 t = 0; t < T; ++t) {
    std::vector<double> want_BV;
    for (i64 b = 0; b < B; ++b) want_BV.insert(want_BV.end(), want.begin() + (b * T + t) * V, want.begin() + (b * T + t + 1) * V);
    ASSERT_LE(worst_excess(eager.logits(batch, t), want_BV, allowed.logits, 0), 0) << "position " << t;
  }
}

// Rows are padded in front (the last row has no padding) and computed in passes of several
// lengths with a key/value cache. The logits of the last position of every pass are compared.
TEST_P(AgainstReference, LogitsOfEveryPassWithACache) {
  const MicroBatch whole = reference.batch("input_ids", "labels");
  const std::vector<double> want = reference.values("logits");
  const i64 B = whole.tokens_BT.size(0), T = whole.tokens_BT.size(1), V = eager.config.vocabulary, all = T + 2 * (B - 1);
  // the number of padding tokens with which row b begins; rows differ in it, and all end at the same position
  const auto front = [&](i64 b) { return 2 * (B - 1 - b); };
  nn::KeyValueCache cache(Stream{.memory = &MemoryPool::heap()}, B, all);
  i64 compared = 0;
  const auto pass = [&](i64 begin, i64 count) {
    MicroBatch batch;
    batch.tokens_BT = zeros({B, count}, DType::int32, "tokens"), batch.targets_BT = zeros({B, count}, DType::int32, "targets");
    batch.positions_BT = zeros({B, count}, DType::int32, "positions");
    batch.key_positions_BT = zeros({B, begin + count}, DType::int32, "positions of keys");
    batch.packed = true;
    for (i64 b = 0; b < B; ++b) {
      for (i64 p = 0; p < begin + count; ++p) {
        const i64 t = p - front(b);
        batch.key_positions_BT.span<i32>()[static_cast<size_t>(b * (begin + count) + p)] = static_cast<i32>(t < 0 ? p : t);
        if (p < begin || t < 0 || t >= T) continue;
        const auto at = static_cast<size_t>(b * count + p - begin);
        batch.tokens_BT.span<i32>()[at] = whole.tokens_BT.span<i32>()[static_cast<size_t>(b * T + t)];
        batch.positions_BT.span<i32>()[at] = static_cast<i32>(t);
      }
    }
    cache.seek(begin);
    nn::Context context;
    context.mode = nn::Mode::generate, context.batch = &batch, context.cache = &cache, context.logits_position = count - 1;
    const std::vector<double> got = test::as_doubles(nn::run(eager.model, context).value);
    for (i64 b = 0; b < B; ++b) {
      const i64 t = begin + count - 1 - front(b);
      if (t < 0 || t >= T) continue;
      const auto row = [&](const std::vector<double>& of, i64 r) { return std::vector(of.begin() + r * V, of.begin() + (r + 1) * V); };
      ASSERT_LE(worst_excess(row(got, b), row(want, b * T + t), allowed.logits, 0), 0) << "row " << b << ", position " << t;
      ++compared;
    }
  };
  for (i64 begin = 0; const i64 count : {5, 1, 4}) pass(begin, count), begin += count;
  for (i64 begin = 10; begin < all; ++begin) pass(begin, 1);
  EXPECT_GE(compared, B * (T - 8));
  if (!eager.config.mixers.empty()) return;  // states cannot go back
  cache.seek(6);                             // the cache forgets all positions from 6 on
  pass(6, 3);
}

TEST_P(AgainstReference, LossAndEveryGradient) {
  const MicroBatch batch = reference.batch("input_ids", "labels");
  EXPECT_EQ(test::as_doubles(eager.weights.gradient(0)).size(), 0u);
  const auto counted = static_cast<double>(batch.counted_targets);
  expect_loss(eager.backward(batch, 1 / counted) / counted, "loss");
  expect_gradients("grad/");
  EXPECT_NEAR(gradient_norm(), reference.value("grad_norm"), allowed.norm_relative * reference.value("grad_norm"));
}

TEST_P(AgainstReference, MaskedTargets) {
  const MicroBatch batch = reference.batch("input_ids", "masked/labels");
  const auto counted = static_cast<double>(batch.counted_targets);
  expect_loss(eager.backward(batch, 1 / counted) / counted, "masked/loss");
  EXPECT_NEAR(gradient_norm(), reference.value("masked/grad_norm"), allowed.norm_relative * reference.value("masked/grad_norm"));
}

// Compares four micro-batches of two rows with one batch of eight rows. Accumulated gradients
// are those of 1/Z times the sum of losses, where Z counts the targets of all micro-batches.
TEST_P(AgainstReference, AccumulationIsTokenWeighted) {
  if (!reference.has("accum/loss")) return;  // only llama-tiny has these references
  for (const std::string prefix : {"accum/", "accum_masked/"}) {
    std::vector<MicroBatch> batches;
    i64 counted = 0;
    for (i64 row = 0; row < 8; row += 2) {
      batches.push_back(reference.batch("accum/input_ids", prefix + "labels", row, 2));
      counted += batches.back().counted_targets;
    }
    const std::vector<double> micro_losses = reference.values(prefix + "micro_loss");
    const auto Z = static_cast<double>(counted);
    eager.weights.forget();
    double sum = 0;
    for (size_t k = 0; k < batches.size(); ++k) {
      const double part = eager.backward(batches[k], 1 / Z);
      EXPECT_NEAR(part / static_cast<double>(batches[k].counted_targets), micro_losses[k], allowed.loss) << prefix << k;
      sum += part;
    }
    expect_loss(sum / Z, prefix + "loss");
    expect_gradients(prefix + "grad/");
  }
}

TEST_P(AgainstReference, GenerateIsTheForwardOfEvaluate) {
  const MicroBatch batch = reference.batch("input_ids", "labels");
  nn::Context context;
  context.batch = &batch;
  context.mode = nn::Mode::evaluate;
  const double evaluated = nn::run(eager.model, context).value.item();
  EXPECT_EQ(evaluated, eager.backward(batch, 1)) << "without dropout training and evaluation are the same numbers";
  EXPECT_EQ(evaluated, eager.backward(batch, 0.5)) << "the factor multiplies the gradient, not the value";
}

std::vector<Case> cases() {
  std::vector<Case> all{{"gpt2-odd", DType::f64}, {"llama-odd", DType::f64}};
  for (const char* model :
       {"gpt2-tiny", "llama-tiny", "llama3rope-tiny", "mistral-tiny", "mistral-window-tiny", "qwen2-tiny", "qwen3-tiny", "gemma2-tiny",
        "gemma3-text-tiny", "phi3-tiny", "phi3-partial-tiny", "olmo2-tiny", "qwen3-moe-tiny", "mixtral-tiny"}) {
    for (const DType dtype : {DType::f32, DType::f64}) all.push_back({model, dtype});
  }
  for (const std::string& family : test::family_folders()) all.push_back({family, DType::f64});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstReference, ::testing::ValuesIn(cases()), [](const auto& entry) {
  std::string name = entry.param.model + "_" + std::string(to_string(entry.param.dtype));
  std::erase(name, '-');
  std::ranges::replace(name, '/', '_');
  return name;
});

TEST(TiedHead, GradientIsTheSumOfBothUses) {
  for (const char* name : {"gpt2-tiny", "llama3rope-tiny"}) {
    const Reference reference(name, DType::f64);
    Eager eager(name, DType::f64);
    const MicroBatch batch = reference.batch("input_ids", "labels");
    eager.backward(batch, 1 / static_cast<double>(batch.counted_targets));
    const auto& table = *eager.model.parameters[0];
    ASSERT_EQ(eager.model.uses(table.id), 2);
    const auto lookup = test::as_doubles(eager.weights.gradient(table.id, 0)), head = test::as_doubles(eager.weights.gradient(table.id, 1));
    const auto sum = eager.gradient(table.name), want = reference.values("grad/" + table.name);
    for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], lookup[i] + head[i]);
    // A planted fault must show: the gradient of one of the two uses of a tied matrix is not the whole gradient.
    EXPECT_GT(worst_excess(lookup, want, 1e-4, 0), 0);
    EXPECT_GT(worst_excess(head, want, 1e-4, 0), 0);
  }
}

// An error in the seventh digit of one weight must show in fp64. The comparison can thus fail.
TEST(PlantedFault, AWrongWeightShows) {
  const Reference reference("llama-tiny", DType::f64);
  Eager eager("llama-tiny", DType::f64);
  const MicroBatch batch = reference.batch("input_ids", "labels");
  eager.model.parameters[3]->value().span<double>()[5] += 1e-7;
  const auto counted = static_cast<double>(batch.counted_targets);
  eager.backward(batch, 1 / counted);
  EXPECT_GT(worst_excess(eager.gradient("lm_head.weight"), reference.values("grad/lm_head.weight"), 1e-10, 0), 0);
}

TEST(PlantedFault, MeanOfMeansIsNotTheTokenWeightedMean) {
  const Reference reference("llama-tiny", DType::f64);
  double mean = 0;
  for (double loss : reference.values("accum_masked/micro_loss")) mean += loss / 4;
  EXPECT_GT(std::abs(mean - reference.value("accum_masked/loss")), 1e-4);
}

}  // namespace
}  // namespace spillway::reference_test
