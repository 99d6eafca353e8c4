// Compares gradients with central differences in fp64, for ops and options that the reference data does not cover.
#include "base/error.h"
#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/experts/experts.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/shape.h"
#include "ops/losses/loss.h"
#include "ops/products/linear.h"
#include "ops/rows/norm.h"
#include "ops/rows/reduce.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "ops/sequence/rope.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace spillway::gradient_test {
namespace {

using ops::Variable;
using test::check_gradient;

Tensor random(const Shape& shape, u64 seed) { return test::random(shape, DType::f64, seed); }

TEST(Gradient, EmbeddingWithRepeats) {
  const Tensor ids = test::ints({2, 0, 2, 2, 4, 0}, {2, 3});
  check_gradient({random({5, 3}, 1)}, [&](const auto& in) { return ops::embedding(ids, in[0]); });
}

TEST(Gradient, AttentionPackedWithDropout) {
  for (const double dropout : {0.0, 0.3}) {
    ops::AttentionOptions options;
    options.scale = 0.5;
    options.dropout = dropout;
    options.key = RandomKey{3};
    check_gradient({random({2, 35, 3 * 2 * 2}, 1)}, [&](const auto& in) { return ops::attention_packed(in[0], 2, options); });
  }
}

TEST(Gradient, GroupedAttentionWithoutMask) {
  ops::AttentionOptions options;
  options.scale = 0.7;
  options.causal = false;
  check_gradient({random({2, 5, 4, 3}, 1), random({2, 6, 2, 3}, 2), random({2, 6, 2, 3}, 3)},
                 [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options); });
}

TEST(Gradient, AttentionWithNarrowValues) {
  ops::AttentionOptions options;
  options.scale = 0.7;
  for (const i64 window : {0, 3}) {
    options.window = window, options.positions_BT = window > 0 ? test::ints({0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 0}, {2, 6}) : Tensor();
    check_gradient({random({2, 5, 4, 5}, 1), random({2, 6, 2, 5}, 2), random({2, 6, 2, 3}, 3), random({4}, 4)},
                   [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options, in[3]); });
  }
}

TEST(Gradient, AttentionWithSinks) {
  ops::AttentionOptions options;
  options.scale = 0.7;
  for (const double dropout : {0.0, 0.3}) {
    options.dropout = dropout, options.key = RandomKey{3};
    check_gradient({random({2, 5, 4, 3}, 1), random({2, 6, 2, 3}, 2), random({2, 6, 2, 3}, 3), random({4}, 4)},
                   [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options, in[3]); });
  }
}

TEST(Gradient, AttentionOfWindowsDocumentsAndCaps) {
  for (const int which : {1, 2, 4, 7}) {
    ops::AttentionOptions options;
    options.scale = 0.7;
    if (which & 1) options.window = 3;
    if (which & 2) options.positions_BT = test::ints({0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0, 0}, {2, 7});
    if (which & 4) options.softcap = 0.9;
    options.dropout = which == 7 ? 0.3 : 0;
    options.key = RandomKey{3};
    check_gradient({random({2, 5, 4, 3}, 1), random({2, 7, 2, 3}, 2), random({2, 7, 2, 3}, 3)},
                   [&](const auto& in) { return ops::attention(in[0], in[1], in[2], options); });
  }
}

TEST(Gradient, NormWithGainsAroundZero) {
  check_gradient({random({5, 7}, 1), random({7}, 2)}, [](const auto& in) { return ops::rms_norm(in[0], in[1], 1e-5, 1); });
  const Tensor x = random({5, 7}, 1), gain = random({7}, 2), one_more = random({7}, 2);
  for (double& g : one_more.span<double>()) g += 1;
  EXPECT_TRUE(test::same_bits(ops::rms_norm(x, gain, 1e-5, 1).value, ops::rms_norm(x, one_more, 1e-5).value));
}

TEST(Gradient, GatedUnits) {
  check_gradient({random({3, 5}, 1), random({3, 5}, 2)}, [](const auto& in) { return ops::geglu(in[0], in[1]); });
  const Tensor gate = random({3, 5}, 1), up = random({3, 5}, 2);
  EXPECT_TRUE(test::same_bits(ops::geglu(gate, up).value, ops::mul(ops::gelu_tanh(gate), up).value));
}

TEST(Gradient, ClampedGatedUnits) {
  for (const auto& [slope, limit] : {std::pair{1.702, 7.0}, {0.6, 0.4}}) {
    check_gradient({random({5, 9}, 1), random({5, 9}, 2)},
                   [&](const auto& in) { return ops::clamped_swiglu(in[0], in[1], {.slope = slope, .limit = limit}); });
  }
}

TEST(Gradient, BiasesOfExperts) {
  const Tensor experts = test::ints({0, 3, 0, 1, 1, 3, 0, 1, 0, 3}, {5, 2});
  const ops::ExpertRows rows = ops::expert_rows(experts, 4);
  check_gradient({random({10, 3}, 1), random({3}, 2), random({3}, 3), random({3}, 4), random({3}, 5)}, [&](const auto& in) {
    return ops::add_expert_biases(in[0], {in.begin() + 1, in.end()}, experts, rows);
  });
}

// Returns logits so far apart that the small steps of central differences change no choice of an expert.
Tensor spread_logits(i64 tokens, i64 experts) {
  const Tensor logits = random({tokens, experts}, 5);
  for (i64 i = 0; i < logits.elems(); ++i) logits.data<double>()[i] += 0.01 * static_cast<double>(i % experts);
  return logits;
}

TEST(Gradient, Router) {
  for (const bool normalised : {true, false}) {
    for (const i64 chosen : {1, 3, 5})
      check_gradient({spread_logits(7, 5)},
                     [&](const auto& in) { return ops::router(in[0], chosen, {.normalised = normalised}).weights_NK; });
  }
}

TEST(Gradient, RouterWithOptions) {
  using Options = ops::RouterOptions;
  const Tensor bias = random({6}, 3);
  const Options several[] = {
      {.scores = Options::Scores::sigmoid, .bias_E = bias, .normalised = true, .added_to_sum = 1e-20, .factor = 2.5},
      {.scores = Options::Scores::sigmoid, .groups = 3, .chosen_groups = 2, .best_of_group = 2, .factor = 0.5},
      {.bias_E = bias, .normalised = true, .added_to_sum = 0.25, .factor = 2},
      {.bias_E = bias, .normalised = true, .least_sum = 5},  // the sum of probabilities is below this limit, so it has no gradient
      {.groups = 2, .chosen_groups = 1, .factor = 16},
  };
  for (const Options& o : several)
    check_gradient({spread_logits(7, 6)}, [&](const auto& in) { return ops::router(in[0], 3, o).weights_NK; });
}

// Returns the experts that six tokens chose. No token chose expert 3.
const Tensor& choices() {
  static const Tensor experts = test::ints({0, 2, 1, 4, 0, 4, 2, 4, 0, 1, 1, 2}, {6, 2});
  return experts;
}

TEST(Gradient, RowsOfExperts) {
  const ops::ExpertRows rows = ops::expert_rows(choices(), 5);
  check_gradient({random({6, 3}, 1)}, [&](const auto& in) { return ops::to_experts(in[0], rows); });
  check_gradient({random({12, 3}, 1), random({6, 2}, 2)}, [&](const auto& in) { return ops::from_experts(in[0], in[1], rows); });
  std::vector<Tensor> inputs{random({12, 3}, 1)};
  for (u64 e = 0; e < 5; ++e) inputs.push_back(random({4, 3}, 10 + e));
  check_gradient(inputs, [&](const auto& in) { return ops::expert_linear(in[0], {in.begin() + 1, in.end()}, rows); });
}

TEST(Gradient, MixtureOfExperts) {
  std::vector<Tensor> inputs{random({6, 3}, 1), random({5, 3}, 2)};
  for (u64 e = 0; e < 15; ++e) inputs.push_back(random(e < 10 ? Shape{4, 3} : Shape{3, 4}, 10 + e));
  check_gradient(inputs, [&](const auto& in) {
    const ops::Routed routed = ops::router(ops::linear(in[0], in[1], {}, ops::WeightLayout::out_in), 2, {.normalised = true});
    const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, 5);
    const Variable x = ops::to_experts(in[0], rows), gate = ops::expert_linear(x, {in.begin() + 2, in.begin() + 7}, rows),
                   up = ops::expert_linear(x, {in.begin() + 7, in.begin() + 12}, rows);
    return ops::from_experts(ops::expert_linear(ops::swiglu(gate, up), {in.begin() + 12, in.end()}, rows), routed.weights_NK, rows);
  });
}

TEST(Gradient, RopeOfAPartOfAHead) {
  const Tensor positions = test::ints({0, 1, 2, 5, 6, 7}, {2, 3});
  const std::vector<double> frequencies{1, 0.3};
  check_gradient({random({2, 3, 2, 7}, 1)}, [&](const auto& in) { return ops::rope(in[0], positions, frequencies, 1.2); });
  const Tensor x = random({2, 3, 2, 7}, 1), y = ops::rope(x, positions, frequencies, 1.2).value;
  for (i64 i = 0; i < x.elems(); ++i) {
    const bool same = test::at(y, i) == test::at(x, i);
    EXPECT_EQ(same, i % 7 >= 4) << i;
  }
}

TEST(Gradient, LinearCrossEntropyOfCappedLogits) {
  const Tensor targets = test::ints({3, -100, 10, 0, 7, 7, 2}, {7});
  for (const i64 chunk_bytes : {256 * kMiB, i64{1}}) {
    check_gradient({random({7, 4}, 1), random({11, 4}, 2)},
                   [&](const auto& in) { return ops::linear_cross_entropy(in[0], in[1], targets, 1, {chunk_bytes}, 0.8); });
  }
}

TEST(Gradient, LinearCrossEntropyInOneChunkAndInSeveral) {
  const Tensor targets = test::ints({3, -100, 10, 0, 7, 7, 2}, {7});
  for (const i64 chunk_bytes : {256 * kMiB, i64{2 * 11 * 8}, i64{1}}) {
    check_gradient({random({7, 4}, 1), random({11, 4}, 2)},
                   [&](const auto& in) { return ops::linear_cross_entropy(in[0], in[1], targets, 1, {chunk_bytes}); });
  }
}

TEST(Gradient, Dropout) {
  check_gradient({random({4, 9}, 1)}, [](const auto& in) { return ops::dropout(in[0], 0.4, RandomKey{8}, 100); });
}

TEST(Gradient, OpsInAChain) {
  check_gradient({random({3, 4}, 1), random({4}, 2)}, [](const auto& in) {
    const Variable x = ops::gelu_tanh(ops::mul(in[0], in[1]));
    return ops::mean(ops::concat({x, ops::slice(ops::add(x, in[0]), 1, 1, 3)}, 1), 0, false);
  });
}

// The cases have odd extents, unequal strides, dilation, groups, a kernel that
// reaches into the padding everywhere, and strides larger than the kernel.
TEST(Gradient, Conv2d) {
  struct Form {
    Shape x, w;
    ops::ConvOptions options;
  };
  const Form forms[] = {{{2, 3, 5, 7}, {4, 3, 3, 2}, {{2, 1}, {1, 2}, 1, 1}},
                        {{1, 4, 7, 6}, {6, 2, 3, 3}, {1, 2, 2, 2}},
                        {{3, 2, 1, 1}, {3, 2, 3, 3}, {1, 1, 1, 1}},
                        {{2, 4, 5, 4}, {4, 1, 3, 3}, {2, 1, 1, 4}},
                        {{2, 3, 7, 5}, {2, 3, 1, 1}, {3, 0, 1, 1}},
                        {{1, 2, 9, 8}, {2, 2, 2, 3}, {{3, 4}, {0, 1}, {3, 2}, 1}},
                        {{2, 5, 4, 3}, {3, 5, 1, 1}, {1, 0, 1, 1}}};
  for (const Form& f : forms) {
    SCOPED_TRACE(to_string(f.x) + " by " + to_string(f.w));
    check_gradient({random(f.x, 1), random(f.w, 2), random({f.w[0]}, 3)},
                   [&](const auto& in) { return ops::conv2d(in[0], in[1], in[2], f.options); });
  }
}

TEST(Gradient, Pools) {
  check_gradient({random({2, 2, 7, 5}, 1)}, [](const auto& in) { return ops::max_pool2d(in[0], {3, 2}, {2, 1}, 1); });
  check_gradient({random({1, 3, 7, 5}, 1)}, [](const auto& in) { return ops::max_pool2d(in[0], 2, 3); });
  check_gradient({random({2, 2, 7, 5}, 1)}, [](const auto& in) { return ops::avg_pool2d(in[0], {3, 2}, {2, 1}, 1); });
  check_gradient({random({1, 2, 7, 5}, 1)}, [](const auto& in) { return ops::adaptive_avg_pool2d(in[0], {3, 4}); });
  check_gradient({random({1, 2, 2, 3}, 1)}, [](const auto& in) { return ops::adaptive_avg_pool2d(in[0], {5, 7}); });
}

TEST(Gradient, BatchNorm2d) {
  for (const bool training : {true, false}) {
    ops::BatchNormOptions options;
    options.training = training;
    for (const Shape& shape : {Shape{3, 2, 4, 5}, Shape{5, 3, 1, 1}, Shape{2, 3, 3, 17}}) {
      const Tensor mean = random({shape[1]}, 7), variance = empty({shape[1]}, DType::f64);
      for (double& v : variance.span<double>()) v = 1.5;
      check_gradient({random(shape, 1), random({shape[1]}, 2), random({shape[1]}, 3)},
                     [&](const auto& in) { return ops::batch_norm2d(in[0], in[1], in[2], mean, variance, options); });
    }
  }
}

// The two channels have means 2 and 10 and unbiased variances 4/3 and 0. The statistics that
// the op returns depend neither on the output's gradient nor on the running statistics.
TEST(BatchNorm, GivesBackTheBatchsStatistics) {
  const Tensor x = tensor_of<double>(std::vector<double>{1, 3, 10, 10, 1, 3, 10, 10}, {2, 2, 1, 2}), gain = random({2}, 2);
  for (const bool training : {true, false}) {
    autograd::Tape tape;
    const Variable mean = tape.input(random({2}, 3)), variance = tape.input(tensor_of<double>(std::vector<double>{5, 7}, {2}));
    const Variable y = ops::batch_norm2d(tape.input(x), gain, gain, mean, variance, {.training = training});
    tape.backward(y, random(y.shape(), 4));
    const Tensor means = tape.take_gradient(mean), variances = tape.take_gradient(variance);
    ASSERT_EQ(means.defined() && variances.defined(), training);
    if (!training) continue;
    EXPECT_EQ(test::at(means, 0), 2);
    EXPECT_EQ(test::at(means, 1), 10);
    EXPECT_DOUBLE_EQ(test::at(variances, 0), 4.0 / 3);
    EXPECT_EQ(test::at(variances, 1), 0);
  }
}

TEST(MaxPool, PassesOnWhatIsNotANumberAndGivesTheFirstOfEquals) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> numbers{1, nan, 3, 3, 2, 0, 3, 3};
  const Tensor x = tensor_of<double>(numbers, {1, 1, 2, 4});
  autograd::Tape tape;
  const Variable in = tape.input(x), y = ops::max_pool2d(in, 2, 2);
  EXPECT_TRUE(std::isnan(test::at(y.value, 0)));
  EXPECT_EQ(test::at(y.value, 1), 3);
  tape.backward(y, tensor_of<double>(std::vector<double>{5, 7}, {1, 1, 1, 2}));
  const Tensor dx = tape.take_gradient(in);
  for (i64 i = 0; i < 8; ++i) EXPECT_EQ(test::at(dx, i), i == 1 ? 5 : i == 2 ? 7 : 0) << i;
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const Tensor x = random({1, 4, 5, 5}, 1);
  EXPECT_THROW(ops::conv2d(x, random({2, 3, 3, 3}, 2), {}), Error) << "channels";
  EXPECT_THROW(ops::conv2d(x, random({2, 4, 7, 3}, 2), {}), Error) << "a kernel larger than the image";
  EXPECT_THROW(ops::conv2d(x, random({3, 2, 3, 3}, 2), {}, {1, 0, 1, 2}), Error) << "outputs that the groups do not divide";
  EXPECT_THROW(ops::conv2d(x, random({2, 4, 3, 3}, 2), random({3}, 3)), Error) << "bias";
  EXPECT_THROW(ops::max_pool2d(x, 2, 2, 2), Error) << "windows that lie in the padding";
}

// Compares attention over several tiles with its definition for one head, in plain loops.
TEST(Attention, IsItsDefinitionOverSeveralTiles) {
  constexpr i64 T = 100, D = 5;
  const Tensor q = random({1, T, 1, D}, 1), k = random({1, T, 1, D}, 2), v = random({1, T, 1, D}, 3);
  ops::AttentionOptions options;
  options.scale = 0.4;
  const Tensor out = ops::attention(q, k, v, options).value;
  for (i64 t = 0; t < T; ++t) {
    std::vector<double> weight;
    double total = 0;
    for (i64 s = 0; s <= t; ++s) {
      double score = 0;
      for (i64 d = 0; d < D; ++d) score += test::at(q, t * D + d) * test::at(k, s * D + d);
      weight.push_back(std::exp(0.4 * score));
      total += weight.back();
    }
    for (i64 d = 0; d < D; ++d) {
      double want = 0;
      for (i64 s = 0; s <= t; ++s) want += weight[static_cast<size_t>(s)] / total * test::at(v, s * D + d);
      ASSERT_NEAR(test::at(out, t * D + d), want, 1e-12) << t;
    }
  }
}

// Values whose heads are narrower than those of keys are compared with their definition: two query heads share one key/value head.
TEST(Attention, OfNarrowValuesIsItsDefinition) {
  constexpr i64 T = 70, H = 2, D = 5, Dv = 3;
  const Tensor q = random({1, T, H, D}, 1), k = random({1, T, 1, D}, 2), v = random({1, T, 1, Dv}, 3);
  ops::AttentionOptions options;
  options.scale = 0.4;
  const Tensor out = ops::attention(q, k, v, options).value;
  ASSERT_EQ(out.shape(), (Shape{1, T, H, Dv}));
  for (i64 t = 0; t < T * H; ++t) {
    double total = 0, want[Dv] = {};
    for (i64 s = 0; s <= t / H; ++s) {
      double score = 0;
      for (i64 d = 0; d < D; ++d) score += test::at(q, t * D + d) * test::at(k, s * D + d);
      total += std::exp(0.4 * score);
      for (i64 d = 0; d < Dv; ++d) want[d] += std::exp(0.4 * score) * test::at(v, s * Dv + d);
    }
    for (i64 d = 0; d < Dv; ++d) ASSERT_NEAR(test::at(out, t * Dv + d), want[d] / total, 1e-12) << t;
  }
  EXPECT_THROW(ops::attention(q, k, random({1, T, 1, D + 1}, 3), options), Error) << "values wider than keys";
  EXPECT_THROW(ops::attention(q, k, random({1, T + 1, 1, Dv}, 3), options), Error);
}

// Compares sliding windows of any width, documents longer than a tile, logit caps and sinks
// with their definition, in rows so long that the kernel skips whole strips of keys.
TEST(Attention, OfWindowsDocumentsCapsAndSinksIsItsDefinition) {
  constexpr i64 T = 1100, D = 3;
  const Tensor q = random({1, T, 1, D}, 1), k = random({1, T, 1, D}, 2), v = random({1, T, 1, D}, 3),
               positions = empty({1, T}, DType::int32);
  for (i64 s = 0; s < T; ++s) positions.data<i32>()[s] = static_cast<i32>(s < 40 ? s : s < 41 ? 0 : s < 900 ? s - 41 : s % 50);
  struct Form {
    i64 window;
    bool documents;
    double softcap;
    std::optional<double> sink;
  };
  for (const Form& form : {Form{1, false, 0, {}}, Form{7, false, 0, {}}, Form{300, false, 0, {}}, Form{5000, false, 0.6, {}},
                           Form{0, true, 0, {}}, Form{300, true, 0.6, {}}, Form{0, false, 0, 1.5}, Form{300, true, 0.6, -0.5}}) {
    ops::AttentionOptions options;
    options.scale = 0.4, options.window = form.window, options.softcap = form.softcap;
    if (form.documents) options.positions_BT = positions;
    Tensor sink;
    if (form.sink) sink = empty({1}, DType::f64), sink.data<double>()[0] = *form.sink;
    const Tensor out = ops::attention(q, k, v, options, sink).value;
    for (i64 t = 0; t < T; ++t) {
      const i64 first = std::max({i64{0}, form.window > 0 ? t + 1 - form.window : 0, form.documents ? t - positions.data<i32>()[t] : 0});
      double total = form.sink ? std::exp(*form.sink) : 0, want[D] = {};
      for (i64 s = first; s <= t; ++s) {
        double score = 0;
        for (i64 d = 0; d < D; ++d) score += 0.4 * test::at(q, t * D + d) * test::at(k, s * D + d);
        const double weight = std::exp(form.softcap > 0 ? form.softcap * std::tanh(score / form.softcap) : score);
        total += weight;
        for (i64 d = 0; d < D; ++d) want[d] += weight * test::at(v, s * D + d);
      }
      for (i64 d = 0; d < D; ++d) ASSERT_NEAR(test::at(out, t * D + d), want[d] / total, 1e-12) << t << " of window " << form.window;
    }
  }
}

// A window that covers all keys equals no window, and documents packed into a row equal each document
// alone. Results and gradients must be the same to the bit, since skipped keys only add zeros to sums.
TEST(Attention, OfDocumentsInARowIsThatOfEachAlone) {
  constexpr i64 T = 330, cut = 288;  // `cut` is a multiple of the kernel's panels, so that sums are split in the same way in both runs
  const auto run = [](const Tensor& x, const ops::AttentionOptions& options) {
    autograd::Tape tape;
    const Variable in = tape.input(x);
    const Variable y = ops::attention_packed(in, 2, options);
    tape.backward(y, y.value);
    return std::pair(y.value, tape.take_gradient(in));
  };
  const Tensor x = test::random({1, T, 24}, DType::f32, 4), positions = empty({1, T}, DType::int32);
  for (i64 s = 0; s < T; ++s) positions.data<i32>()[s] = static_cast<i32>(s < cut ? s : s - cut);
  ops::AttentionOptions plain, packed, wide;
  plain.scale = packed.scale = wide.scale = 0.5;
  packed.positions_BT = positions, wide.window = T;
  const auto whole = run(x, plain), windowed = run(x, wide), both = run(x, packed), first = run(x.slice(1, 0, cut), plain);
  EXPECT_TRUE(test::same_bits(windowed.first, whole.first));
  EXPECT_TRUE(test::same_bits(windowed.second, whole.second));
  EXPECT_TRUE(test::same_bits(both.first.slice(1, 0, cut), first.first));
  EXPECT_TRUE(test::same_bits(both.second.slice(1, 0, cut), first.second)) << "nothing flows back over the border";
  const Tensor last = empty({1, T - cut, 24}, DType::f32);
  std::copy_n(x.data<float>() + cut * 24, last.elems(), last.data<float>());
  const auto second = run(last, plain);
  test::expect_near(both.first.slice(1, cut, T), second.first, 1e-6, 1e-6, "out");
  test::expect_near(both.second.slice(1, cut, T), second.second, 1e-5, 1e-5, "gradient");
  EXPECT_FALSE(test::same_bits(both.first, whole.first)) << "planted: without documents";
}

// The dropout mask depends on the sample's number, so a row gives the same numbers in any micro-batch.
TEST(Attention, DropoutFollowsTheSampleNumber) {
  const Tensor qkv = test::random({3, 10, 24}, DType::f32, 1);
  ops::AttentionOptions options;
  options.scale = 1;
  options.dropout = 0.5;
  options.first_sample = 40;
  const Tensor all = ops::attention_packed(qkv, 2, options).value;
  options.first_sample = 42;
  const Tensor last = ops::attention_packed(qkv.slice(0, 2, 3), 2, options).value;
  EXPECT_TRUE(test::same_bits(last, all.slice(0, 2, 3)));
  options.first_sample = 41;
  EXPECT_FALSE(test::same_bits(ops::attention_packed(qkv.slice(0, 2, 3), 2, options).value, last))
      << "planted: another sample, another mask";
}

TEST(Loss, FusedHeadEqualsItsParts) {
  const Tensor x = test::random({9, 20}, DType::f32, 1), w = test::random({50, 20}, DType::f32, 2);
  const Tensor targets = test::ints({1, 2, -100, 49, 0, 7, 7, 30, 12}, {9});
  const auto run = [&](const std::function<Variable(const Variable&, const Variable&)>& head) {
    autograd::Tape tape;
    const Variable vx = tape.input(x), vw = tape.input(w), loss = head(vx, vw);
    loss.backward();
    return std::vector<Tensor>{loss.value, tape.take_gradient(vx), tape.take_gradient(vw)};
  };
  const auto parts = run([&](const Variable& vx, const Variable& vw) {
    return ops::cross_entropy_sum(ops::linear(vx, vw, {}, ops::WeightLayout::out_in), targets, 0.125);
  });
  const auto fused = run([&](const Variable& vx, const Variable& vw) { return ops::linear_cross_entropy(vx, vw, targets, 0.125); });
  const auto chunked =
      run([&](const Variable& vx, const Variable& vw) { return ops::linear_cross_entropy(vx, vw, targets, 0.125, {2 * 50 * 4}); });
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(fused[i], parts[i])) << i;
  EXPECT_TRUE(test::same_bits(chunked[0], parts[0])) << "a row's loss does not depend on its chunk";
  EXPECT_TRUE(test::same_bits(chunked[1], parts[1])) << "nor does its gradient";
  test::expect_near(chunked[2], parts[2], 1e-5, 1e-6, "dw, summed over chunks");
}

TEST(Loss, GradientFactorAndIncomingGradientMultiply) {
  const Tensor logits = test::random({3, 7}, DType::f64, 1), targets = test::ints({1, 0, 6}, {3});
  const auto gradient = [&](double factor, double seed) {
    autograd::Tape tape;
    const Variable x = tape.input(logits), loss = ops::cross_entropy_sum(x, targets, factor);
    const std::vector<double> one{seed};
    tape.backward(loss, tensor_of<double>(one, {}));
    return std::pair(loss.value.item(), tape.take_gradient(x));
  };
  const auto [loss, plain] = gradient(1, 1);
  const auto [same, scaled] = gradient(0.5, 4);
  EXPECT_EQ(loss, same) << "the factor belongs to the gradient, not to the value";
  for (i64 i = 0; i < 21; ++i) EXPECT_NEAR(test::at(scaled, i), 2 * test::at(plain, i), 1e-15);
}

TEST(Loss, RefusesBadTargets) {
  const Tensor logits = test::random({2, 5}, DType::f32, 1);
  EXPECT_THROW(ops::cross_entropy_sum(logits, test::ints({1, 5}, {2}), 1), Error);
  EXPECT_THROW(ops::cross_entropy_mean(logits, test::ints({-100, -1}, {2})), Error);
  EXPECT_THROW(ops::cross_entropy_sum(logits, test::ints({1}, {1}), 1), Error);
  EXPECT_THROW(ops::embedding(test::ints({5}, {1}), logits), Error);
}

}  // namespace
}  // namespace spillway::gradient_test
