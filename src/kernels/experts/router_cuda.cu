#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/experts/router.h"
#include "kernels/sums_cuda.h"
#include "tensor/batch.h"

// The routing kernels for a GPU. One warp handles one token, and a lane every 32nd expert, so that adjacent lanes read adjacent numbers.
// Sums over experts are added by each lane in ascending order and then as a tree over the warp.
namespace spillway::kernels::cuda {
namespace {

// Experts and groups rank by falling value; of equal values the lower index ranks first. Rank {0, -1} is that of none.
template <class W>
struct Ranked {
  W value;
  i32 index;
  // Returns whether this one ranks before `other`. Any expert or group ranks before none.
  __device__ bool before(const Ranked& other) const {
    return index >= 0 && (other.index < 0 || value > other.value || (value == other.value && index < other.index));
  }
};

// The part of RouterOptions that a kernel needs.
template <class W>
struct Options {
  bool is_sigmoid, normalised, is_plain;
  const W* bias;  // null if there is none
  int groups, chosen_groups, best_of_group;
  W least_sum, added_to_sum, factor;
  explicit Options(const RouterOptions& o)
      : is_sigmoid(o.scores == RouterOptions::Scores::sigmoid),
        normalised(o.normalised),
        is_plain(o.is_plain()),
        bias(data_or_null<W>(o.bias_E)),
        groups(static_cast<int>(o.groups)),
        chosen_groups(static_cast<int>(o.chosen_groups)),
        best_of_group(static_cast<int>(o.best_of_group)),
        least_sum(static_cast<W>(o.least_sum)),
        added_to_sum(static_cast<W>(o.added_to_sum)),
        factor(static_cast<W>(o.factor)) {}
  // Returns by what the weights are divided.
  __device__ W divisor(W sum) const { return normalised ? (sum < least_sum ? least_sum : sum) + added_to_sum : W(1); }
};

// The numbers by which a token's experts are chosen: probability plus bias, or minus infinity for experts of groups that are not chosen.
template <class W>
struct Values {
  const W *p, *bias;
  int group_size;
  u32 chosen_groups;  // bit g: whether group g is chosen
  __device__ W operator[](int e) const {
    if (chosen_groups != ~0u && !(chosen_groups >> (e / group_size) & 1)) return -std::numeric_limits<W>::infinity();
    return bias != nullptr ? p[e] + bias[e] : p[e];
  }
};

// Computes the softmax of one token's logits.
template <class T>
__device__ void softmax(const T* from, int experts, Wide<T>* p) {
  using W = Wide<T>;
  W largest = -std::numeric_limits<W>::infinity(), sum = 0;
  for (int e = WarpRows::rank(); e < experts; e += kWarpThreads) largest = Larger()(largest, widen(from[e]));
  largest = WarpRows::fold(largest, Larger());
  for (int e = WarpRows::rank(); e < experts; e += kWarpThreads) sum += p[e] = std::exp(widen(from[e]) - largest);
  sum = WarpRows::fold(sum, Plus());
  for (int e = WarpRows::rank(); e < experts; e += kWarpThreads) p[e] /= sum;
}

// Computes the sigmoid of one token's logits. If one of them is NaN, all results are NaN.
template <class T>
__device__ void sigmoid(const T* from, int experts, Wide<T>* p) {
  using W = Wide<T>;
  W sum = 0;
  for (int e = WarpRows::rank(); e < experts; e += kWarpThreads) sum += p[e] = 1 / (1 + std::exp(-widen(from[e])));
  sum = WarpRows::fold(sum, Plus());
  for (int e = WarpRows::rank(); !(sum == sum) && e < experts; e += kWarpThreads) p[e] = sum;
}

// Returns the last of the `chosen` of `count` values that rank first, or none if the values are NaN. A lane looks at values[lane + 32 i]
// alone.
template <class W, class Of>
__device__ Ranked<W> last_chosen(const Of& values, int count, int chosen) {
  Ranked<W> last{0, -1};
  for (int k = 0; k < chosen; ++k) {
    Ranked<W> best{0, -1};
    for (int e = WarpRows::rank(); e < count; e += kWarpThreads) {
      const Ranked<W> here{values[e], e};
      if (here.value == here.value && (k == 0 || last.before(here)) && here.before(best)) best = here;
    }
    for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      const Ranked<W> other{__shfl_xor_sync(~0u, best.value, mask), __shfl_xor_sync(~0u, best.index, mask)};
      if (other.before(best)) best = other;
    }
    last = best;
    if (last.index < 0) break;
  }
  return last;
}

// A group's score in the registers of the lane with the group's number.
template <class W>
struct ScoreOfLane {
  W score;
  __device__ W operator[](int) const { return score; }
};

// Chooses groups of experts by their scores. Each lane computes the score of one group.
template <class W>
__device__ u32 chosen_groups(const Options<W>& o, const Values<W>& values) {
  if (o.chosen_groups == o.groups || !(values.p[0] == values.p[0])) return ~0u;
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  const int g = WarpRows::rank(), first = g * values.group_size;
  W best = kNone, second = kNone;
  for (int e = first; g < o.groups && e < first + values.group_size; ++e) {
    const W here = values[e];
    if (here > best) {
      second = best;
      best = here;
    } else if (here > second) {
      second = here;
    }
  }
  const W score = o.best_of_group == 2 ? best + second : best;
  const Ranked<W> last = last_chosen<W>(ScoreOfLane<W>{score}, o.groups, o.chosen_groups);
  return __ballot_sync(~0u, g < o.groups && !last.before(Ranked<W>{score, g}));
}

// Writes the chosen experts in ascending order of their indices, and their weights. These are the expert `last` and all that rank before
// it. If `last` is none, the first experts are chosen.
template <class W>
__device__ void write_chosen(const Options<W>& o, const Values<W>& values, int experts, int chosen, i32* choice, W* weight) {
  const Ranked<W> last = last_chosen<W>(values, experts, chosen);
  int count = 0;
  W sum = 0;
  for (int first = 0; first < experts && count < chosen; first += kWarpThreads) {
    const int e = first + WarpRows::rank();
    const Ranked<W> here{e < experts ? values[e] : 0, e};
    const bool is_chosen = e < experts && !last.before(here);
    const u32 all = __ballot_sync(~0u, is_chosen);
    const int k = count + __popc(all & ((1u << WarpRows::rank()) - 1));
    count += __popc(all);
    if (!is_chosen || k >= chosen) continue;
    choice[k] = e;
    weight[k] = values.p[e];
    sum += values.p[e];
  }
  if (!o.normalised && o.factor == 1) return;
  sum = WarpRows::fold(sum, Plus());
  const W by = o.divisor(sum);
  __syncwarp();  // waits until the weights have been written
  for (int k = WarpRows::rank(); k < chosen; k += kWarpThreads) weight[k] = weight[k] / by * o.factor;
}

template <class T>
__global__ void route_tokens(i64 tokens, int experts, int chosen, Options<Wide<T>> o, const T* logits, Wide<T>* probabilities, i32* choice,
                             Wide<T>* weight) {
  for (i64 n = WarpRows::first(); n < tokens; n += WarpRows::step()) {
    Wide<T>* const p = probabilities + n * experts;
    o.is_sigmoid ? sigmoid(logits + n * experts, experts, p) : softmax(logits + n * experts, experts, p);
    __syncwarp();  // waits until the probabilities have been written
    Values<Wide<T>> values{p, o.bias, experts / o.groups, ~0u};
    values.chosen_groups = chosen_groups(o, values);
    write_chosen(o, values, experts, chosen, choice + n * chosen, weight + n * chosen);
  }
}

template <class T>
struct Gradient {
  i64 tokens;
  int experts, chosen;
  Options<Wide<T>> options;
  const Wide<T>* p;
  const i32* choice;
  const Wide<T>*weight, *dweight;
  const double* choices;  // of the load; null if there is no load-balancing loss
  const i32* target;
  double load_factor;
  T* dlogits;
};

// Computes the gradient of one token's logits; router_cpu.cc has the formulas.
template <class T>
__global__ void route_gradients(Gradient<T> g) {
  using W = Wide<T>;
  for (i64 n = WarpRows::first(); n < g.tokens; n += WarpRows::step()) {
    const W *p = g.p + n * g.experts, *weight = g.weight + n * g.chosen, *dweight = g.dweight + n * g.chosen;
    const i32* choice = g.choice + n * g.chosen;
    const bool balances = g.choices != nullptr && (g.target == nullptr || g.target[n] != kPaddingTarget);
    const auto of_load = [&](int e) { return balances ? static_cast<W>(g.load_factor * g.choices[e]) : W(0); };
    const Options<W>& o = g.options;
    W mean = 0, mean_of_load = 0, sum = 0, dot = 0;
    for (int k = WarpRows::rank(); k < g.chosen; k += kWarpThreads) mean += weight[k] * dweight[k];
    for (int e = WarpRows::rank(); balances && e < g.experts; e += kWarpThreads) mean_of_load += p[e] * of_load(e);
    mean = WarpRows::fold(mean, Plus());
    mean_of_load = WarpRows::fold(mean_of_load, Plus());
    for (int k = WarpRows::rank(); !o.is_plain && k < g.chosen; k += kWarpThreads) sum += p[choice[k]];
    sum = WarpRows::fold(sum, Plus());
    const W by = o.divisor(sum), of_sum = o.normalised && sum >= o.least_sum ? mean : W(0);
    const auto of_probability = [&](int k) { return (o.factor * dweight[k] - of_sum) / by; };
    for (int k = WarpRows::rank(); !o.is_plain && k < g.chosen; k += kWarpThreads) dot += p[choice[k]] * of_probability(k);
    dot = WarpRows::fold(dot, Plus());
    for (int e = WarpRows::rank(); e < g.experts; e += kWarpThreads) {
      int of_choice = -1;
      for (int k = 0; k < g.chosen; ++k) {
        if (choice[k] == e) of_choice = k;
      }
      W d;
      if (o.is_plain) {
        const W of_others = o.normalised ? W(0) : -p[e] * mean;
        d = of_choice >= 0 ? weight[of_choice] * (dweight[of_choice] - mean) : of_others;
      } else {
        const W dp = of_choice >= 0 ? of_probability(of_choice) : W(0);
        d = o.is_sigmoid ? p[e] * (1 - p[e]) * dp : p[e] * (dp - dot);
      }
      g.dlogits[n * g.experts + e] = narrow<T>(balances ? d + p[e] * (of_load(e) - mean_of_load) : d);
    }
  }
}

dim3 blocks_for_tokens(i64 tokens) { return blocks_for_tasks(ceil_div(tokens, i64{WarpRows::kRowsOfBlock})); }

}  // namespace

void router(const Tensor& logits, const RouterOptions& options, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  for_dtype("router", logits.dtype(), [&]<class T>(T) {
    const i64 tokens = logits.size(0);
    launch("router", route_tokens<T>, blocks_for_tokens(tokens), dim3(kBlockThreads), tokens, static_cast<int>(logits.size(1)),
           static_cast<int>(experts.size(1)), Options<Wide<T>>(options), logits.data<T>(), probabilities.data<Wide<T>>(),
           experts.data<i32>(), weights.data<Wide<T>>());
  });
}

void router_gradient(const Tensor& probabilities, const Tensor& experts, const Tensor& weights, const Tensor& dweights,
                     const RouterOptions& options, const RouterLoad& load, const Tensor& dlogits) {
  for_dtype("router_gradient", dlogits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 tokens = dlogits.size(0);
    launch("router_gradient", route_gradients<T>, blocks_for_tokens(tokens), dim3(kBlockThreads),
           Gradient<T>{tokens, static_cast<int>(dlogits.size(1)), static_cast<int>(experts.size(1)), Options<W>(options),
                       probabilities.data<W>(), experts.data<i32>(), weights.data<W>(), dweights.data<W>(),
                       data_or_null<double>(load.load_2E), data_or_null<i32>(load.targets_N), load.factor, dlogits.data<T>()});
  });
}

}  // namespace spillway::kernels::cuda
