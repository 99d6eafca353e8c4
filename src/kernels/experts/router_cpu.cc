#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/experts/router.h"
#include "kernels/has_cuda.h"
#include "tensor/batch.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 12;  // the approximate number of logits of a task

void check(const RouterOptions& o, const Tensor& logits, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  const bool ranks = logits.rank() == 2 && experts.rank() == 2 && experts.shape() == weights.shape();
  require(ranks && probabilities.shape() == logits.shape() && experts.size(0) == logits.size(0) && experts.size(1) >= 1 &&
              experts.size(1) <= logits.size(1),
          "[router] expected logits and probabilities [N, E], experts and weights [N, K] with 1 <= K <= E");
  const DType wide = wide_dtype(logits.dtype());
  require(probabilities.dtype() == wide && weights.dtype() == wide && experts.dtype() == DType::int32,
          "[router] expected int32 experts, and probabilities and weights in f32 (f64 if the logits are f64)");
  require(logits.is_contiguous() && probabilities.is_contiguous() && experts.is_contiguous() && weights.is_contiguous(),
          "[router] expected contiguous logits, probabilities, experts and weights");
  const i64 count = logits.size(1);
  require(1 <= o.chosen_groups && o.chosen_groups <= o.groups && o.groups <= kMaxExpertGroups && count % o.groups == 0,
          "[router] expected 1 to 32 groups of equally many experts, of which 1 to all are chosen");
  require((o.best_of_group == 1 || o.best_of_group == 2) && (o.groups == 1 || o.best_of_group <= count / o.groups) &&
              experts.size(1) <= o.chosen_groups * (count / o.groups),
          "[router] expected the chosen groups to have the experts of a token, and each group the one or two experts of its score");
  require(!o.bias_E.defined() || (o.bias_E.shape() == Shape{count} && o.bias_E.dtype() == wide && o.bias_E.is_contiguous()),
          "[router] expected a contiguous bias [E] in f32 (f64 if the logits are f64)");
  require(o.factor > 0 && o.least_sum >= 0 && o.added_to_sum >= 0,
          "[router] expected a factor above 0 and limits of the sum that are at least 0");
}

template <class T>
void softmax(const T* logits, i64 n, Wide<T>* p) {
  using W = Wide<T>;
  W largest = widen(logits[0]), sum = 0;
  for (i64 e = 1; e < n; ++e) largest = std::max(largest, widen(logits[e]));
  for (i64 e = 0; e < n; ++e) sum += p[e] = std::exp(widen(logits[e]) - largest);
  for (i64 e = 0; e < n; ++e) p[e] /= sum;
}

// Computes the sigmoid of one token's logits. If one of them is NaN, all results are NaN.
template <class T>
void sigmoid(const T* logits, i64 n, Wide<T>* p) {
  using W = Wide<T>;
  W sum = 0;
  for (i64 e = 0; e < n; ++e) sum += p[e] = 1 / (1 + std::exp(-widen(logits[e])));
  if (!(sum == sum)) std::fill_n(p, n, sum);
}

// Experts and groups are ranked by falling value; of equal values the lower index ranks first. Returns the index of the last of the
// `chosen` values that rank first, or -1 if too many values are NaN.
template <class W>
i64 last_chosen(const W* value, i64 count, i64 chosen) {
  i64 last = -1;
  for (i64 k = 0; k < chosen; ++k) {
    i64 best = -1;
    for (i64 e = 0; e < count; ++e) {
      const bool is_after = last < 0 || value[e] < value[last] || (value[e] == value[last] && e > last);
      if (is_after && value[e] == value[e] && (best < 0 || value[e] > value[best])) best = e;
    }
    last = best;
    if (best < 0) break;
  }
  return last;
}

// Returns whether e is `last` or ranks before it. If `last` is -1, all values count as chosen.
template <class W>
bool is_chosen(const W* value, i64 last, i64 e) {
  return last < 0 || value[e] > value[last] || (value[e] == value[last] && e <= last);
}

// Writes to value[E] the numbers by which a token's experts are chosen: probability plus bias, or minus infinity for the experts of groups
// that are not chosen.
template <class W>
void biased(const RouterOptions& o, const W* p, i64 experts, W* value) {
  const W* bias = o.bias_E.defined() ? o.bias_E.data<W>() : nullptr;
  for (i64 e = 0; e < experts; ++e) value[e] = bias != nullptr ? p[e] + bias[e] : p[e];
  if (o.chosen_groups == o.groups || !(p[0] == p[0])) return;
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  const i64 size = experts / o.groups;
  W score[kMaxExpertGroups];
  for (i64 g = 0; g < o.groups; ++g) {
    W best = kNone, second = kNone;
    for (i64 e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(best, value[e]));
      best = std::max(best, value[e]);
    }
    score[g] = o.best_of_group == 2 ? best + second : best;
  }
  const i64 last = last_chosen(score, o.groups, o.chosen_groups);
  for (i64 g = 0; g < o.groups; ++g) {
    if (!is_chosen(score, last, g)) std::fill_n(value + g * size, size, kNone);
  }
}

template <class W>
W divisor(const RouterOptions& o, W sum) {
  const W least = static_cast<W>(o.least_sum);
  return (sum < least ? least : sum) + static_cast<W>(o.added_to_sum);
}

// Chooses the `chosen` experts with the largest value[E]. Writes their indices in ascending order to `choice`, and their weights, which
// are made of their probabilities p[E], to `weight`.
template <class W>
void choose_experts(const RouterOptions& o, const W* p, const W* value, i64 experts, i64 chosen, i32* choice, W* weight) {
  const i64 last = last_chosen(value, experts, chosen);
  i64 count = 0;
  W sum = 0;
  for (i64 e = 0; e < experts && count < chosen; ++e) {
    if (!is_chosen(value, last, e)) continue;
    choice[count] = static_cast<i32>(e);
    weight[count++] = p[e];
    sum += p[e];
  }
  const W by = o.normalised ? divisor(o, sum) : 1, factor = static_cast<W>(o.factor);
  for (i64 k = 0; k < chosen; ++k) weight[k] = weight[k] / by * factor;
}

// Writes the gradient of one token's logits. Let dw be the gradient of the weights. For plain weights that are normalised, the gradient is
// w (dw - sum(w dw)) for the chosen experts and 0 for the others. For plain weights that are not, it is p (dp - sum(p dp)), where dp is dw
// for the chosen experts and 0 for the others. In general, weights are w = factor p / d with d = max(sum(p), least_sum) + added_to_sum, or
// with d = 1. The gradient of a chosen probability is then dp = (factor dw - sum(w dw)) / d, where the sum is left out if d does not depend
// on p, and the gradient of a logit is p (dp - sum(p dp)) through a softmax and p (1 - p) dp through a sigmoid. If there are `choices`
// (router_load.h), the gradient of the loss load_factor * choices * probability is added. That gradient is p (dq - sum(p dq)) with dq =
// load_factor * choices.
template <class T>
void choice_gradient(const RouterOptions& o, const Wide<T>* p, const i32* choice, const Wide<T>* weight, const Wide<T>* dweight,
                     i64 experts, i64 chosen, const double* choices, double load_factor, T* dlogits) {
  using W = Wide<T>;
  const bool is_sigmoid = o.scores == RouterOptions::Scores::sigmoid;
  W mean = 0, sum = 0, dot = 0;
  for (i64 k = 0; k < chosen; ++k) mean += weight[k] * dweight[k];
  for (i64 k = 0; k < chosen; ++k) sum += p[choice[k]];
  const W by = o.normalised ? divisor(o, sum) : 1, of_sum = o.normalised && sum >= static_cast<W>(o.least_sum) ? mean : 0;
  const auto of_probability = [&](i64 k) { return (static_cast<W>(o.factor) * dweight[k] - of_sum) / by; };
  for (i64 k = 0; k < chosen; ++k) dot += p[choice[k]] * of_probability(k);
  const auto of_choice = [&](i64 e, i64 k, bool is_chosen) {
    if (o.is_plain()) {
      const W of_others = o.normalised ? W(0) : -p[e] * mean;
      return is_chosen ? weight[k] * (dweight[k] - mean) : of_others;
    }
    const W dp = is_chosen ? of_probability(k) : W(0);
    return is_sigmoid ? p[e] * (1 - p[e]) * dp : p[e] * (dp - dot);
  };
  const auto of_load = [&](i64 e) { return static_cast<W>(load_factor * choices[e]); };
  W mean_of_load = 0;
  for (i64 e = 0; choices && e < experts; ++e) mean_of_load += p[e] * of_load(e);
  i64 k = 0;
  for (i64 e = 0; e < experts; ++e) {
    const bool is_chosen = k < chosen && choice[k] == e;
    const W d = of_choice(e, k, is_chosen);
    dlogits[e] = narrow<T>(choices ? d + p[e] * (of_load(e) - mean_of_load) : d);
    k += is_chosen;
  }
}

}  // namespace

void router(const Tensor& logits, const RouterOptions& options, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  check(options, logits, probabilities, experts, weights);
  if (logits.device().is_meta() || logits.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(logits, router(logits, options, probabilities, experts, weights));
  for_dtype("router", logits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 E = logits.size(1), K = experts.size(1);
    const T* from = logits.data<T>();
    W *p = probabilities.data<W>(), *weight = weights.data<W>();
    i32* choice = experts.data<i32>();
    Stream::current().for_ranges(logits.size(0), ceil_div(kGrain, E), [=](i64 begin, i64 end) {
      const bool is_biased = options.bias_E.defined() || options.chosen_groups < options.groups;
      std::vector<W> values(static_cast<size_t>(is_biased ? E : 0));
      for (i64 n = begin; n < end; ++n) {
        W* const at = p + n * E;
        options.scores == RouterOptions::Scores::sigmoid ? sigmoid(from + n * E, E, at) : softmax(from + n * E, E, at);
        if (is_biased) biased(options, at, E, values.data());
        choose_experts(options, at, is_biased ? values.data() : at, E, K, choice + n * K, weight + n * K);
      }
    });
  });
}

void router_gradient(const Tensor& probabilities, const Tensor& experts, const Tensor& weights, const Tensor& dweights,
                     const RouterOptions& options, const RouterLoad& load, const Tensor& dlogits) {
  check(options, dlogits, probabilities, experts, weights);
  require(dweights.shape() == weights.shape() && dweights.dtype() == weights.dtype() && dweights.is_contiguous(),
          "[router_gradient] expected a contiguous gradient with the shape and dtype of the weights");
  require(options.scores == RouterOptions::Scores::softmax || !load.load_2E.defined(),
          "[router_gradient] expected the scores of a softmax, because there is a load-balancing loss");
  if (dlogits.device().is_meta() || dlogits.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(dlogits, router_gradient(probabilities, experts, weights, dweights, options, load, dlogits));
  for_dtype("router_gradient", dlogits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 E = dlogits.size(1), K = experts.size(1);
    const W *p = probabilities.data<W>(), *weight = weights.data<W>(), *dweight = dweights.data<W>();
    const i32* choice = experts.data<i32>();
    const double* choices = load.load_2E.defined() ? load.load_2E.data<double>() : nullptr;
    const i32* target = load.targets_N.defined() ? load.targets_N.data<i32>() : nullptr;
    const double factor = load.factor;
    T* to = dlogits.data<T>();
    Stream::current().for_ranges(dlogits.size(0), ceil_div(kGrain, E), [=](i64 begin, i64 end) {
      for (i64 n = begin; n < end; ++n) {
        const bool is_padding = target != nullptr && target[n] == kPaddingTarget;
        choice_gradient(options, p + n * E, choice + n * K, weight + n * K, dweight + n * K, E, K, is_padding ? nullptr : choices, factor,
                        to + n * E);
      }
    });
  });
}

}  // namespace spillway::kernels
