// Compares mixtures of experts with their definition: ties, NaN, experts without tokens, and results that depend bitwise only on the data.
#include "ops/experts/experts.h"

#include <limits>

#include "base/error.h"
#include "ops/elementwise/glu.h"
#include "ops/products/linear.h"
#include "tests/support/numbers.h"
#include "tests/support/sink.h"

namespace spillway::experts_test {
namespace {

using ops::Variable;
using test::random;

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

std::vector<i32> ints_of(const Tensor& t) { return {t.span<i32>().begin(), t.span<i32>().end()}; }

Tensor doubles(const std::vector<double>& values, const Shape& shape) { return tensor_of<double>(values, shape); }

TEST(Router, OfEqualOnesTheLower) {
  const Tensor logits = doubles({1, 1, 1, 1, 2, 3, 3, 3, 0, 0, 5, 0, -1e9, -1e9, -1e9, 0}, {4, 4});
  for (const DType dtype : kFloats) {
    const ops::Routed routed =
        ops::router(test::as(dtype, doubles({1, 1, 1, 1, 2, 3, 3, 3, 0, 0, 5, 0, -60, -60, -60, 0}, {4, 4})), 2, {.normalised = true});
    EXPECT_EQ(ints_of(routed.experts_NK), (std::vector<i32>{0, 1, 1, 2, 0, 2, 0, 3}));
    EXPECT_EQ(routed.weights_NK.dtype(), wide_dtype(dtype));
    EXPECT_EQ(test::at(routed.weights_NK.value, 0), 0.5);
  }
  const ops::Routed all = ops::router(logits, 4, {.normalised = false});
  EXPECT_EQ(ints_of(all.experts_NK), (std::vector<i32>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(test::at(all.weights_NK.value, 12), 0) << "a probability that is zero can be chosen";
  EXPECT_EQ(ints_of(ops::router(logits, 1, {.normalised = true}).experts_NK), (std::vector<i32>{0, 1, 2, 3}));
}

TEST(Router, WeightsAreTheirShareOfTheSoftmax) {
  const Tensor logits = random({9, 7}, DType::f64, 1, 2);
  const ops::Routed plain = ops::router(logits, 3, {.normalised = false}), normalised = ops::router(logits, 3, {.normalised = true});
  EXPECT_EQ(ints_of(plain.experts_NK), ints_of(normalised.experts_NK));
  for (i64 n = 0; n < 9; ++n) {
    double total = 0, chosen = 0, least = 1;
    std::vector<double> p;
    for (i64 e = 0; e < 7; ++e) total += std::exp(test::at(logits, n * 7 + e));
    for (i64 e = 0; e < 7; ++e) p.push_back(std::exp(test::at(logits, n * 7 + e)) / total);
    const std::vector<i32> experts = ints_of(plain.experts_NK);
    for (i64 k = n * 3; k < n * 3 + 3; ++k) {
      const double want = std::exchange(p[static_cast<size_t>(experts[static_cast<size_t>(k)])], -1);
      EXPECT_NEAR(test::at(plain.weights_NK.value, k), want, 1e-15);
      chosen += want, least = std::min(least, want);
    }
    for (const double left_out : p) EXPECT_LT(left_out, least);
    for (i64 k = n * 3; k < n * 3 + 3; ++k)
      EXPECT_NEAR(test::at(normalised.weights_NK.value, k), test::at(plain.weights_NK.value, k) / chosen, 1e-15);
  }
}

// gpt-oss takes the softmax over the chosen logits alone; a normalised router must give its weights and gradients.
TEST(Router, NormalisedIsTheSoftmaxOfTheChosen) {
  for (const i64 chosen : {1, 3}) {
    const Tensor logits = random({9, 7}, DType::f64, 1, 2);
    autograd::Tape tape;
    const Variable in = tape.input(logits);
    const ops::Routed routed = ops::router(in, chosen, {.normalised = true});
    const Tensor dy = random(routed.weights_NK.shape(), DType::f64, 2);
    tape.backward(routed.weights_NK, dy);
    const Tensor got = tape.take_gradient(in);
    for (i64 n = 0; n < 9; ++n) {
      double total = 0, mean = 0;
      std::vector<double> want(7);
      const auto expert = [&](i64 k) { return routed.experts_NK.data<i32>()[n * chosen + k]; };
      for (i64 k = 0; k < chosen; ++k) total += std::exp(test::at(logits, n * 7 + expert(k)));
      for (i64 k = 0; k < chosen; ++k) {
        const double p = std::exp(test::at(logits, n * 7 + expert(k))) / total;
        EXPECT_NEAR(test::at(routed.weights_NK.value, n * chosen + k), p, 1e-15);
        mean += p * test::at(dy, n * chosen + k);
      }
      for (i64 k = 0; k < chosen; ++k) {
        const double p = std::exp(test::at(logits, n * 7 + expert(k))) / total;
        want[static_cast<size_t>(expert(k))] = p * (test::at(dy, n * chosen + k) - mean);
      }
      for (i64 e = 0; e < 7; ++e) EXPECT_NEAR(test::at(got, n * 7 + e), want[static_cast<size_t>(e)], 1e-15);
    }
  }
}

// A router logit that overflowed must show in the loss as NaN, and must not lead to an access out of bounds.
TEST(Router, NaNAndInfinityGoToTheFirstWithNaN) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = doubles({0, nan, 1, inf, 0, 1, -inf, -inf, -inf, 0, 1, -inf}, {4, 3});
  const ops::Routed routed = ops::router(logits, 2, {.normalised = true});
  EXPECT_EQ(ints_of(routed.experts_NK), (std::vector<i32>{0, 1, 0, 1, 0, 1, 0, 1}));
  for (i64 i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(test::at(routed.weights_NK.value, i))) << i;
  EXPECT_NEAR(test::at(routed.weights_NK.value, 7), 1 / (1 + std::exp(-1.0)), 1e-15) << "minus infinity alone is a probability of zero";
}

// Experts and weights of the routers of DeepSeek V3, DeepSeek V2, Mistral 4 and Ernie 4.5, as transformers 5.24 computes them in fp64.
TEST(Router, ChoosesAndWeightsAsFamiliesDo) {
  constexpr i64 N = 4, E = 8, K = 3;
  const Tensor logits = empty({N, E}, DType::f64), bias = empty({E}, DType::f64);
  for (i64 i = 0; i < N * E; ++i) logits.data<double>()[i] = 2 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  for (i64 e = 0; e < E; ++e) bias.data<double>()[e] = 0.4 * std::cos(2.3 * static_cast<double>(e));
  using Options = ops::RouterOptions;
  const auto check = [&](const char* family, const Options& options, const std::vector<i32>& experts, const std::vector<double>& weights) {
    const ops::Routed routed = ops::router(logits, K, options);
    EXPECT_EQ(ints_of(routed.experts_NK), experts) << family;
    for (i64 i = 0; i < N * K; ++i)
      EXPECT_NEAR(test::at(routed.weights_NK.value, i), weights[static_cast<size_t>(i)], 1e-14) << family << ", weight " << i;
  };
  check("DeepSeek V3",
        {.scores = Options::Scores::sigmoid,
         .bias_E = bias,
         .groups = 4,
         .chosen_groups = 2,
         .best_of_group = 2,
         .normalised = true,
         .added_to_sum = 1e-20,
         .factor = 2.5},
        {0, 1, 5, 0, 4, 5, 3, 6, 7, 2, 3, 6},
        {0.7097163662482306, 0.9487795341227878, 0.8415040996289815, 1.0625389092650919, 1.0596271412782237, 0.37783394945668447,
         0.9630724707674415, 0.557572452300676, 0.9793550769318825, 0.7567337260422624, 0.8630258163180264, 0.8802404576397109});
  check("DeepSeek V2", {.groups = 4, .chosen_groups = 2, .factor = 2.5}, {1, 4, 5, 0, 1, 4, 3, 6, 7, 2, 3, 6},
        {0.9221915259274867, 0.6429687722534587, 0.4820233047029021, 0.8467759162531879, 0.15034436052828004, 0.8285908974944196,
         0.7564359324451231, 0.11887756672861807, 0.8621400851869266, 0.40268471199296557, 0.7382536772992715, 0.8351531882637577});
  check("Mistral 4", {.groups = 4, .chosen_groups = 2, .best_of_group = 2, .normalised = true, .added_to_sum = 1e-20, .factor = 2.5},
        {1, 4, 5, 0, 1, 4, 3, 6, 7, 2, 3, 6},
        {1.1261710046773583, 0.7851869897596322, 0.5886420055630094, 1.1595151634390306, 0.20587095407890782, 1.134613882482062,
         1.088426101356068, 0.17105142807651114, 1.2405224705674212, 0.5094459140539946, 0.9339821161177337, 1.0565719698282718});
  check("Ernie 4.5", {.bias_E = bias, .normalised = true, .least_sum = 0.9}, {0, 3, 5, 0, 3, 5, 0, 3, 5, 0, 3, 6},
        {0.12009321996085981, 0.014178105177659217, 0.2142325798679565, 0.3763448516680835, 0.07269301486485757, 0.024321956759339434,
         0.21354928432168108, 0.336193747753388, 0.007256008438255334, 0.0398313269821907, 0.3281127454663429, 0.37117919478389233});
}

TEST(Router, OfEqualGroupsTheLowerAndOfNaNTheFirst) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = doubles({1, 1, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 0, nan}, {3, 6});
  for (const auto scores : {ops::RouterOptions::Scores::softmax, ops::RouterOptions::Scores::sigmoid}) {
    const ops::Routed routed =
        ops::router(logits, 2, {.scores = scores, .groups = 3, .chosen_groups = 1, .best_of_group = 2, .normalised = true});
    EXPECT_EQ(ints_of(routed.experts_NK), (std::vector<i32>{0, 1, 2, 3, 0, 1}));
    EXPECT_TRUE(std::isnan(test::at(routed.weights_NK.value, 4)) && std::isnan(test::at(routed.weights_NK.value, 5)));
  }
}

TEST(Rows, LieSortedByExpertAndThenByToken) {
  const ops::ExpertRows rows = ops::expert_rows(test::ints({0, 2, 1, 4, 0, 4, 2, 4}, {4, 2}), 6);
  EXPECT_EQ(ints_of(rows.begins), (std::vector<i32>{0, 2, 3, 5, 5, 8, 8}));
  EXPECT_EQ(ints_of(rows.choice_of_row), (std::vector<i32>{0, 4, 2, 1, 6, 3, 5, 7}));
  EXPECT_EQ(ints_of(rows.row_of_choice_NK), (std::vector<i32>{0, 3, 2, 5, 1, 6, 4, 7}));
  EXPECT_THROW(ops::expert_rows(test::ints({0, 6}, {1, 2}), 6), Error);
  EXPECT_THROW(ops::expert_rows(test::ints({-1, 3}, {1, 2}), 6), Error);
}

struct Mixture {
  Tensor x, router;
  std::vector<Tensor> gate, up, down;
  Mixture(i64 tokens, i64 experts, DType dtype) : x(random({tokens, 24}, dtype, 1)), router(random({experts, 24}, dtype, 2)) {
    for (u64 e = 0; e < static_cast<u64>(experts); ++e) {
      gate.push_back(random({52, 24}, dtype, 10 + e, 0.2));
      up.push_back(random({52, 24}, dtype, 40 + e, 0.2));
      down.push_back(random({24, 52}, dtype, 70 + e, 0.2));
    }
  }
};

struct Results {
  Tensor y, dx;
  std::map<std::pair<u32, u8>, Tensor> gradients;
};

Results run(const Mixture& m, i64 chosen) {
  test::Sink sink;
  autograd::Tape tape(&sink);
  u32 id = 0;
  const auto all = [&](const std::vector<Tensor>& tensors) {
    std::vector<Variable> variables;
    for (const Tensor& t : tensors) variables.push_back(tape.parameter(t, id++));
    return variables;
  };
  const Variable x = tape.input(m.x), router = tape.parameter(m.router, id++);
  const std::vector<Variable> gate = all(m.gate), up = all(m.up), down = all(m.down);
  const ops::Routed routed = ops::router(ops::linear(x, router, {}, ops::WeightLayout::out_in), chosen, {.normalised = true});
  const ops::ExpertRows rows = ops::expert_rows(routed.experts_NK, m.router.size(0));
  const Variable in = ops::to_experts(x, rows);
  const Variable h =
      ops::swiglu(ops::expert_linear(in, {gate.begin(), gate.end()}, rows), ops::expert_linear(in, {up.begin(), up.end()}, rows));
  const Variable y = ops::from_experts(ops::expert_linear(h, {down.begin(), down.end()}, rows), routed.weights_NK, rows);
  tape.backward(y, random(y.shape(), y.dtype(), 3));
  return {y.value, tape.take_gradient(x), sink.gradients};
}

void expect_same(const Results& a, const Results& b) {
  EXPECT_TRUE(test::same_bits(a.y, b.y));
  EXPECT_TRUE(test::same_bits(a.dx, b.dx));
  for (const auto& [key, gradient] : a.gradients) EXPECT_TRUE(test::same_bits(gradient, b.gradients.at(key))) << key.first;
}

TEST(Mixture, TheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : kFloats) {
    const Mixture m(150, 6, dtype);
    const Results one = run(m, 2);
    for (const int threads : {2, 3}) test::with_threads(threads, [&] { expect_same(run(m, 2), one); });
  }
}

// The reference for a mixture of experts computes each token alone, with other ops, in fp64.
TEST(Mixture, IsItsDefinition) {
  const Mixture m(40, 5, DType::f64);
  const Results got = run(m, 2);
  for (i64 n = 0; n < 40; ++n) {
    const Tensor x = m.x.slice(0, n, n + 1);
    const ops::Routed routed = ops::router(ops::linear(x, m.router, {}, ops::WeightLayout::out_in), 2, {.normalised = true});
    std::vector<double> want(24);
    for (i64 k = 0; k < 2; ++k) {
      const auto e = static_cast<size_t>(routed.experts_NK.data<i32>()[k]);
      const auto times = [](const Variable& v, const Tensor& w) { return ops::linear(v, w, {}, ops::WeightLayout::out_in); };
      const Tensor y = times(ops::swiglu(times(x, m.gate[e]), times(x, m.up[e])), m.down[e]).value;
      for (i64 c = 0; c < 24; ++c) want[static_cast<size_t>(c)] += test::at(routed.weights_NK.value, k) * test::at(y, c);
    }
    for (i64 c = 0; c < 24; ++c) ASSERT_NEAR(test::at(got.y, n * 24 + c), want[static_cast<size_t>(c)], 1e-13) << n;
  }
}

// The results of a token must not depend on the other tokens in the batch.
TEST(Mixture, OfATokenIsItsOwn) {
  for (const DType dtype : kFloats) {
    Mixture m(60, 5, dtype);
    const Tensor all = run(m, 2).y;
    m.x = m.x.slice(0, 30, 60);
    EXPECT_TRUE(test::same_bits(run(m, 2).y, all.slice(0, 30, 60)));
  }
}

TEST(Mixture, AnExpertWithoutTokensHasAGradientOfZeros) {
  for (const DType dtype : kFloats) {
    const Mixture m(2, 6, dtype);
    const Results got = run(m, 1);
    int idle = 0;
    for (u32 e = 0; e < 6; ++e) {
      const auto is_zero = [&](u32 id) {
        const Tensor& gradient = got.gradients.at({id, 0});
        for (i64 i = 0; i < gradient.elems(); ++i) {
          if (test::at(gradient, i) != 0) return false;
        }
        return true;
      };
      EXPECT_EQ(is_zero(1 + e), is_zero(13 + e));
      idle += is_zero(1 + e);
    }
    EXPECT_GE(idle, 4);
    EXPECT_LT(idle, 6);
  }
}

TEST(Mixture, NearFp64InNarrowTypes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Mixture m(50, 4, dtype);
    Mixture exact = m;
    const auto widen = [](Tensor& t) { t = test::as(DType::f64, t); };
    widen(exact.x), widen(exact.router);
    for (auto* tensors : {&exact.gate, &exact.up, &exact.down}) {
      for (Tensor& t : *tensors) widen(t);
    }
    // Every token goes to all experts, so that rounding the logits cannot change the choice.
    const Results got = run(m, 4), want = run(exact, 4);
    const double error = 40 * test::half_ulp(dtype);
    test::expect_near(got.y, want.y, error, error, "y");
    test::expect_near(got.dx, want.dx, 4 * error, 4 * error, "dx");
    for (const auto& [key, gradient] : want.gradients)
      test::expect_near(got.gradients.at(key), gradient, 4 * error, 20 * error, "parameter " + std::to_string(key.first));
  }
}

TEST(Biases, AreThoseOfTheRowsExperts) {
  const Tensor experts = test::ints({0, 2, 1, 2, 0, 2}, {3, 2});
  const ops::ExpertRows rows = ops::expert_rows(experts, 4);
  const Tensor x = random({6, 5}, DType::f32, 1);
  std::vector<Variable> biases;
  for (u64 e = 0; e < 4; ++e) biases.emplace_back(random({5}, DType::f32, 10 + e));
  const Tensor y = ops::add_expert_biases(x, biases, experts, rows).value;
  constexpr i64 kExpertOfRow[] = {0, 0, 1, 2, 2, 2};
  for (i64 r = 0; r < 6; ++r) {
    for (i64 o = 0; o < 5; ++o)
      EXPECT_EQ(y.data<float>()[r * 5 + o],
                x.data<float>()[r * 5 + o] + biases[static_cast<size_t>(kExpertOfRow[r])].value.data<float>()[o]);
  }
  biases.pop_back();
  EXPECT_THROW(ops::add_expert_biases(x, biases, experts, rows), Error);
  biases.emplace_back(random({4}, DType::f32, 1));
  EXPECT_THROW(ops::add_expert_biases(x, biases, experts, rows), Error);
}

TEST(Experts, RefuseWhatDoesNotFit) {
  const Tensor logits = random({3, 4}, DType::f32, 1);
  EXPECT_THROW(ops::router(logits, 0, {.normalised = true}), Error);
  EXPECT_THROW(ops::router(logits, 5, {.normalised = true}), Error);
  EXPECT_THROW(ops::router(random({12}, DType::f32, 1), 1, {.normalised = true}), Error);
  EXPECT_THROW(ops::router(logits, 1, {.groups = 3}), Error) << "groups that do not divide the experts";
  EXPECT_THROW(ops::router(logits, 3, {.groups = 2}), Error) << "more experts than the chosen groups have";
  EXPECT_THROW(ops::router(logits, 1, {.groups = 4, .best_of_group = 2}), Error) << "groups of one expert";
  EXPECT_THROW(ops::router(logits, 1, {.bias_E = random({3}, DType::f32, 1)}), Error);
  EXPECT_THROW(ops::router(logits, 1, {.bias_E = random({4}, DType::f64, 1)}), Error);
  EXPECT_THROW(ops::router(logits, 1, {.factor = 0}), Error);
  const ops::ExpertRows rows = ops::expert_rows(test::ints({0, 1, 1}, {3, 1}), 2);
  const Tensor x = random({3, 4}, DType::f32, 1), w = random({5, 4}, DType::f32, 2);
  EXPECT_THROW(ops::expert_linear(x, {w}, rows), Error) << "an expert too few";
  EXPECT_THROW(ops::expert_linear(x, {w, random({5, 3}, DType::f32, 2)}, rows), Error);
  EXPECT_THROW(ops::expert_linear(x, {w, random({5, 4}, DType::f64, 2)}, rows), Error);
  EXPECT_THROW(ops::expert_linear(random({4, 4}, DType::f32, 2), {w, w}, rows), Error) << "a row too many";
  EXPECT_THROW(ops::from_experts(x, random({3, 1}, DType::f64, 2), rows), Error) << "weights of another type";
  EXPECT_THROW(ops::from_experts(random({4, 4}, DType::f32, 1), random({3, 1}, DType::f32, 2), rows), Error);
}

}  // namespace
}  // namespace spillway::experts_test
