// One token's choice of experts and its gradient, for the CPU's and the GPU's router alike.
#pragma once
#include "tensor/dtype.h"

namespace spillway::kernels {

/// p[E] -> the `chosen` largest in ascending order, and their weights. NaN compares as nothing: then the first ones.
template <class W>
constexpr void choose_experts(const W* p, i64 experts, i64 chosen, bool normalised, i32* choice, W* weight) {
  // The last one in, by falling probability and then by number; everything not after it is in.
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

/// Normalised: dl = w (dw - sum(w dw)) of the chosen, 0 of the others. Else dl = p (dw - sum(p dw)), dw being 0 of the others. And where
/// there are `choices` (router_load.h), of the loss of factor * choices * probability: p (dp - sum(p dp)).
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
