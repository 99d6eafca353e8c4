// Compares mixtures of experts on a GPU with the CPU. The places of rows, and results with only one order of additions, equal
// the CPU's to the bit. Other results are near fp64. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include <limits>

#include "kernels/accumulate.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/experts/router.h"
#include "kernels/experts/router_load.h"
#include "tensor/batch.h"
#include "tests/kernels/experts/support_experts.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::experts_cuda_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

class ExpertTwins : public test::GpuTest {};

struct Routed {
  Tensor probabilities, experts, weights, dlogits, load, loss;
};

// Runs the router and its gradient. `targets` tell which tokens are padding, which the
// router loss leaves out. If weights are normalised, the gradient includes that loss.
Routed route(const Tensor& logits, const Tensor& dweights, const Tensor& targets, i64 chosen, const kernels::RouterOptions& options) {
  const DType wide = wide_dtype(logits.dtype());
  const Shape few{logits.size(0), chosen};
  const i64 E = logits.size(1);
  Routed r{empty(logits.shape(), wide),           empty(few, DType::int32),  empty(few, wide),
           empty(logits.shape(), logits.dtype()), zeros({2, E}, DType::f64), zeros(Shape{1}, DType::f64)};
  kernels::router(logits, options, r.probabilities, r.experts, r.weights);
  for (int layer = 0; layer < 2; ++layer) kernels::add_router_load(r.probabilities, r.experts, layer == 0 ? Tensor() : targets, r.load);
  kernels::add_router_loss(r.load, 0.5, r.loss);
  const bool has_loss = options.normalised && options.scores == kernels::RouterOptions::Scores::softmax;
  const kernels::RouterLoad load{has_loss ? r.load : Tensor(), targets, 0.01};
  kernels::router_gradient(r.probabilities, r.experts, r.weights, dweights, options, load, r.dlogits);
  return r;
}

Routed route_on_gpu(test::Gpu& gpu, const Tensor& logits, const Tensor& dweights, const Tensor& targets, i64 chosen,
                    const kernels::RouterOptions& options) {
  const Routed r = gpu.run([&] {
    kernels::RouterOptions there = options;
    if (options.bias_E.defined()) there.bias_E = gpu(options.bias_E);
    return route(gpu(logits), gpu(dweights), targets.defined() ? gpu(targets) : Tensor(), chosen, there);
  });
  return {gpu.host(r.probabilities), gpu.host(r.experts), gpu.host(r.weights), gpu.host(r.dlogits), gpu.host(r.load), gpu.host(r.loss)};
}

// The router's sums have up to 130 exponentials, each accurate to 2 ulp on a GPU and 1 ulp on the CPU, added in increasing order.
TEST_F(ExpertTwins, RouterNearTheCpu) {
  constexpr i64 kSizes[][3] = {{1, 1, 1}, {5, 4, 2}, {300, 8, 2}, {33, 128, 8}, {7, 130, 130}};
  for (const auto& [tokens, experts, chosen] : kSizes) {
    for (const DType dtype : kFloats) {
      for (const bool normalised : {true, false}) {
        const Tensor logits = test::random({tokens, experts}, dtype, 1, 2), dweights = test::random({tokens, chosen}, wide_dtype(dtype), 2);
        std::vector<i32> padded(static_cast<size_t>(tokens));
        for (size_t n = 0; n < padded.size(); ++n) padded[n] = n % 3 == 2 ? kPaddingTarget : n % 3 == 1 ? kIgnoredTarget : 0;
        const Tensor targets = test::ints(padded, {tokens});
        const Routed got = route_on_gpu(gpu(), logits, dweights, targets, chosen, {.normalised = normalised}),
                     want = route(logits, dweights, targets, chosen, {.normalised = normalised});
        const double error = 200 * test::half_ulp(wide_dtype(dtype));
        EXPECT_TRUE(test::same_bits(got.experts, want.experts));
        test::expect_near(got.probabilities, want.probabilities, error, 0, "probabilities");
        test::expect_near(got.weights, want.weights, error, 0, "weights");
        // dlogits include the gradient of the router's load-balancing loss. Its factor times the number of choices may be as large as 6.
        test::expect_near(got.dlogits, want.dlogits, error + 2 * test::stored_error(dtype, 1), (normalised ? 8 : 1) * error, "dlogits");
        test::expect_near(got.load, want.load, error, 0, "load");
        test::expect_near(got.loss, want.loss, error, 0, "loss");
      }
    }
  }
}

// Weights are at most 2.5 times a share of 1, and a probability's gradient is divided by a sum of at least 0.2.
TEST_F(ExpertTwins, RouterWithOptionsNearTheCpu) {
  using Options = kernels::RouterOptions;
  constexpr i64 kTokens = 70, kExperts = 96, kChosen = 6;
  for (const DType dtype : kFloats) {
    const DType wide = wide_dtype(dtype);
    const Tensor logits = test::random({kTokens, kExperts}, dtype, 1, 2), dweights = test::random({kTokens, kChosen}, wide, 2),
                 bias = test::random({kExperts}, wide, 3, 0.3);
    const Options several[] = {
        {.scores = Options::Scores::sigmoid,
         .bias_E = bias,
         .groups = 8,
         .chosen_groups = 3,
         .best_of_group = 2,
         .normalised = true,
         .added_to_sum = 1e-20,
         .factor = 2.5},
        {.scores = Options::Scores::sigmoid, .bias_E = bias, .normalised = false},
        {.groups = 32, .chosen_groups = 2, .factor = 2},
        {.bias_E = bias, .normalised = true, .least_sum = 0.2},
    };
    for (const Options& o : several) {
      const Routed got = route_on_gpu(gpu(), logits, dweights, {}, kChosen, o), want = route(logits, dweights, {}, kChosen, o);
      const double error = 500 * test::half_ulp(wide);
      EXPECT_TRUE(test::same_bits(got.experts, want.experts));
      test::expect_near(got.probabilities, want.probabilities, error, 0, "probabilities");
      test::expect_near(got.weights, want.weights, error, 0, "weights");
      test::expect_near(got.dlogits, want.dlogits, error + 2 * test::stored_error(dtype, 1), 25 * error, "dlogits");
    }
  }
}

TEST_F(ExpertTwins, RouterOfTiesAndOfWhatIsNoNumber) {
  const Tensor ties = test::random({40, 9}, DType::f32, 3);
  for (float& x : ties.span<float>()) x = std::round(x);
  const float inf = std::numeric_limits<float>::infinity();
  for (i64 row = 0; row < 4; ++row) {
    for (i64 e = 0; e < 9; ++e) {
      const float none[] = {std::numeric_limits<float>::quiet_NaN(), inf, -inf, e == 4 ? inf : 0};
      ties.data<float>()[row * 9 + e] = none[row];
    }
  }
  const Tensor dweights = test::random({40, 3}, DType::f32, 4);
  const auto compared = [&](const kernels::RouterOptions& options, i64 nans) {
    const Routed got = route_on_gpu(gpu(), ties, dweights, {}, 3, options), want = route(ties, dweights, {}, 3, options);
    EXPECT_TRUE(test::same_bits(got.experts, want.experts));
    for (i64 i = 0; i < nans; ++i) EXPECT_TRUE(std::isnan(test::at(got.weights, i)) && std::isnan(test::at(want.weights, i))) << i;
  };
  compared({.normalised = true}, 12);
  compared({.groups = 3, .chosen_groups = 1, .best_of_group = 2, .normalised = true}, 12);
  // The sigmoid of an infinite logit is a finite number.
  compared({.scores = kernels::RouterOptions::Scores::sigmoid, .groups = 3, .chosen_groups = 2, .best_of_group = 2, .normalised = true}, 3);
}

using test::experts_of;
using test::Rows;
using test::sorted;

struct Form {
  i64 tokens, experts, chosen, columns;
};
// The list of choices is sorted in stretches of at least 256 choices; of 300 tokens it fills three of them.
constexpr Form kForms[] = {{1, 1, 1, 1}, {7, 3, 2, 5}, {300, 6, 2, 24}, {40, 70, 8, 33}, {20, 5, 4, 1040}};

void expect_same_places(test::Gpu& gpu, const Rows& there, const Rows& want) {
  EXPECT_TRUE(test::same_bits(gpu.host(there.begins), want.begins));
  EXPECT_TRUE(test::same_bits(gpu.host(there.choice_of_row), want.choice_of_row));
  EXPECT_TRUE(test::same_bits(gpu.host(there.row_of_choice), want.row_of_choice));
}

// 10,250 choices are 41 stretches, which are more than there are warps that sum them up. Shared memory has room for the counters of fewer
// than 1,100 experts at a time.
TEST_F(ExpertTwins, ManyChoicesAndManyExpertsAreSortedAsOnTheCpu) {
  for (const Form& f : {Form{2050, 40, 5, 1}, Form{150, 1100, 3, 1}}) {
    const Tensor experts = experts_of(f.tokens, f.experts, f.chosen);
    expect_same_places(gpu(), gpu().run([&] { return sorted(gpu()(experts), f.experts); }), sorted(experts, f.experts));
  }
}

TEST_F(ExpertTwins, RowsAreTheCpus) {
  for (const Form& f : kForms) {
    const Tensor experts = experts_of(f.tokens, f.experts, f.chosen);
    const Rows want = sorted(experts, f.experts), there = gpu().run([&] { return sorted(gpu()(experts), f.experts); });
    expect_same_places(gpu(), there, want);
    for (const DType dtype : kFloats) {
      const Tensor tokens = test::random({f.tokens, f.columns}, dtype, 1), rows = test::random({f.tokens * f.chosen, f.columns}, dtype, 2),
                   weights = test::random({f.tokens, f.chosen}, wide_dtype(dtype), 3);
      for (const Tensor& w : {weights, Tensor()}) {
        const Tensor gathered = empty(rows.shape(), dtype), sums = empty(tokens.shape(), dtype);
        kernels::gather_rows(tokens, want.choice_of_row, w, gathered);
        kernels::sum_rows(rows, want.row_of_choice, w, sums);
        const auto [got_gathered, got_sums] = gpu().run([&] {
          const Tensor g = empty(rows.shape(), dtype), s = empty(tokens.shape(), dtype);
          kernels::gather_rows(gpu()(tokens), there.choice_of_row, gpu()(w), g);
          kernels::sum_rows(gpu()(rows), there.row_of_choice, gpu()(w), s);
          return std::pair(g, s);
        });
        EXPECT_TRUE(test::same_bits(gpu().host(got_gathered), gathered)) << f.tokens << to_string(dtype);
        EXPECT_TRUE(test::same_bits(gpu().host(got_sums), sums)) << f.tokens << to_string(dtype);
      }
      const Tensor products = empty(weights.shape(), wide_dtype(dtype));
      kernels::row_products(tokens, rows, want.row_of_choice, products);
      const Tensor got = gpu().run([&] {
        const Tensor p = empty(weights.shape(), wide_dtype(dtype));
        kernels::row_products(gpu()(tokens), gpu()(rows), there.row_of_choice, p);
        return p;
      });
      const double error = 4 * test::half_ulp(wide_dtype(dtype)) * std::sqrt(static_cast<double>(f.columns));
      test::expect_near(gpu().host(got), products, error, error * std::sqrt(static_cast<double>(f.columns)), "products");
    }
  }
}

// Rows begin one element later than aligned memory does, so no access of 16 bytes is aligned. The results must be bitwise the same as for
// aligned rows.
TEST_F(ExpertTwins, RowsLieAnywhere) {
  const Form f{30, 4, 2, 48};
  const Tensor experts = experts_of(f.tokens, f.experts, f.chosen);
  const Rows rows = gpu().run([&] { return sorted(gpu()(experts), f.experts); });
  for (const DType dtype : kFloats) {
    const Tensor tokens = test::random({f.tokens, f.columns}, dtype, 1), weights = test::random({f.tokens, f.chosen}, wide_dtype(dtype), 3);
    const Tensor memory = gpu().empty({tokens.elems() + 1}, dtype);
    const Tensor shifted(memory.storage(), size_of(dtype), tokens.shape(), dtype);
    const auto all = gpu().run([&] {
      kernels::copy(gpu()(tokens), shifted);
      std::vector<Tensor> results;
      for (const Tensor& from : {gpu()(tokens), shifted}) {
        const Tensor gathered = empty({60, 48}, dtype), products = empty(weights.shape(), wide_dtype(dtype));
        kernels::gather_rows(from, rows.choice_of_row, gpu()(weights), gathered);
        kernels::row_products(from, gathered, rows.row_of_choice, products);
        results.push_back(gathered), results.push_back(products);
      }
      return results;
    });
    EXPECT_TRUE(test::same_bits(gpu().host(all[0]), gpu().host(all[2])));
    EXPECT_TRUE(test::same_bits(gpu().host(all[1]), gpu().host(all[3])));
  }
}

}  // namespace
}  // namespace spillway::experts_cuda_test
