#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/experts/router.h"
#include "kernels/has_cuda.h"
#include "tensor/batch.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 12;  // the approximate number of logits of a task

void check(const Tensor& logits, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  const bool ranks = logits.rank() == 2 && experts.rank() == 2 && experts.shape() == weights.shape();
  require(ranks && probabilities.shape() == logits.shape() && experts.size(0) == logits.size(0) && experts.size(1) >= 1 &&
              experts.size(1) <= logits.size(1),
          "[router] expected logits and probabilities [N, E], experts and weights [N, K] with 1 <= K <= E");
  const DType wide = wide_dtype(logits.dtype());
  require(probabilities.dtype() == wide && weights.dtype() == wide && experts.dtype() == DType::int32,
          "[router] expected int32 experts, and probabilities and weights in f32 (f64 if the logits are f64)");
  require(logits.is_contiguous() && probabilities.is_contiguous() && experts.is_contiguous() && weights.is_contiguous(),
          "[router] expected contiguous logits, probabilities, experts and weights");
}

template <class T>
void softmax(const T* logits, i64 n, Wide<T>* p) {
  using W = Wide<T>;
  W largest = widen(logits[0]), sum = 0;
  for (i64 e = 1; e < n; ++e) largest = std::max(largest, widen(logits[e]));
  for (i64 e = 0; e < n; ++e) sum += p[e] = std::exp(widen(logits[e]) - largest);
  for (i64 e = 0; e < n; ++e) p[e] /= sum;
}

// Chooses the `chosen` experts with the largest probabilities in p[E]. Writes their indices in ascending order to `choice`, and their
// weights to `weight`. If p is NaN, the first experts are chosen.
template <class W>
void choose_experts(const W* p, i64 experts, i64 chosen, bool normalised, i32* choice, W* weight) {
  // Experts are ranked by falling probability; of equally probable experts the lower index ranks first.
  // `last` becomes the last chosen expert. The chosen experts are `last` and all that rank before it.
  i64 last = -1;
  for (i64 k = 0; k < chosen; ++k) {
    i64 best = -1;
    for (i64 e = 0; e < experts; ++e) {
      const bool is_after = last < 0 || p[e] < p[last] || (p[e] == p[last] && e > last);
      if (is_after && p[e] == p[e] && (best < 0 || p[e] > p[best])) best = e;
    }
    last = best;
    if (best < 0) break;
  }
  i64 count = 0;
  W sum = 0;
  for (i64 e = 0; e < experts && count < chosen; ++e) {
    if (last >= 0 && !(p[e] > p[last] || (p[e] == p[last] && e <= last))) continue;
    choice[count] = static_cast<i32>(e);
    weight[count++] = p[e];
    sum += p[e];
  }
  for (i64 k = 0; normalised && k < chosen; ++k) weight[k] /= sum;
}

// Writes the gradient of one token's logits. Let dw be the gradient of the weights. If normalised, the gradient
// is w (dw - sum(w dw)) for the chosen experts and 0 for the others. Otherwise it is p (dp - sum(p dp)), where dp
// is dw for the chosen experts and 0 for the others. If there are `choices` (router_load.h), the gradient of the
// loss factor * choices * probability is added. That gradient is p (dq - sum(p dq)) with dq = factor * choices.
template <class T>
void choice_gradient(const Wide<T>* p, const i32* choice, const Wide<T>* weight, const Wide<T>* dweight, i64 experts, i64 chosen,
                     bool normalised, const double* choices, double factor, T* dlogits) {
  using W = Wide<T>;
  W mean = 0;
  for (i64 k = 0; k < chosen; ++k) mean += weight[k] * dweight[k];
  const auto of_load = [&](i64 e) { return static_cast<W>(factor * choices[e]); };
  W mean_of_load = 0;
  for (i64 e = 0; choices && e < experts; ++e) mean_of_load += p[e] * of_load(e);
  i64 k = 0;
  for (i64 e = 0; e < experts; ++e) {
    const bool is_chosen = k < chosen && choice[k] == e;
    const W of_others = normalised ? W(0) : -p[e] * mean;
    const W of_choice = is_chosen ? weight[k] * (dweight[k] - mean) : of_others;
    dlogits[e] = narrow<T>(choices ? of_choice + p[e] * (of_load(e) - mean_of_load) : of_choice);
    k += is_chosen;
  }
}

}  // namespace

void router(const Tensor& logits, bool normalised, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  check(logits, probabilities, experts, weights);
  if (logits.device().is_meta() || logits.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(logits, router(logits, normalised, probabilities, experts, weights));
  for_dtype("router", logits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 E = logits.size(1), K = experts.size(1);
    const T* from = logits.data<T>();
    W *p = probabilities.data<W>(), *weight = weights.data<W>();
    i32* choice = experts.data<i32>();
    Stream::current().for_ranges(logits.size(0), ceil_div(kGrain, E), [=](i64 begin, i64 end) {
      for (i64 n = begin; n < end; ++n) {
        softmax(from + n * E, E, p + n * E);
        choose_experts(p + n * E, E, K, normalised, choice + n * K, weight + n * K);
      }
    });
  });
}

void router_gradient(const Tensor& probabilities, const Tensor& experts, const Tensor& weights, const Tensor& dweights, bool normalised,
                     const RouterLoad& load, const Tensor& dlogits) {
  check(dlogits, probabilities, experts, weights);
  require(dweights.shape() == weights.shape() && dweights.dtype() == weights.dtype() && dweights.is_contiguous(),
          "[router_gradient] expected a contiguous gradient with the shape and dtype of the weights");
  if (dlogits.device().is_meta() || dlogits.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(dlogits, router_gradient(probabilities, experts, weights, dweights, normalised, load, dlogits));
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
        choice_gradient(p + n * E, choice + n * K, weight + n * K, dweight + n * K, E, K, normalised, is_padding ? nullptr : choices,
                        factor, to + n * E);
      }
    });
  });
}

}  // namespace spillway::kernels
