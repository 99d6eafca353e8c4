// Chooses the experts of one token and computes the gradient of the choice. The routers of CPU and GPU share these functions.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels {

/// Chooses the `chosen` experts with the largest probabilities in p[E]. Writes their indices in ascending order to `choice`, and their
/// weights to `weight`. If p is NaN, the first experts are chosen.
template <class W>
constexpr void choose_experts(const W* p, i64 experts, i64 chosen, bool normalised, i32* choice, W* weight) {
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

/// Writes the gradient of one token's logits. Let dw be the gradient of the weights. If normalised, the gradient
/// is w (dw - sum(w dw)) for the chosen experts and 0 for the others. Otherwise it is p (dp - sum(p dp)), where dp
/// is dw for the chosen experts and 0 for the others. If there are `choices` (router_load.h), the gradient of the
/// loss factor * choices * probability is added. That gradient is p (dq - sum(p dq)) with dq = factor * choices.
template <class T>
constexpr void choice_gradient(const Wide<T>* p, const i32* choice, const Wide<T>* weight, const Wide<T>* dweight, i64 experts, i64 chosen,
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

}  // namespace spillway::kernels
