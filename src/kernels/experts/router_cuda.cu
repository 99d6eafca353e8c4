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

// Experts rank by falling probability; of equally probable experts the lower index ranks first. Rank {0, -1} is that of no expert.
template <class W>
struct Ranked {
  W p;
  i32 expert;
  // Returns whether this expert ranks before `other`. Any expert ranks before none.
  __device__ bool before(const Ranked& other) const {
    return expert >= 0 && (other.expert < 0 || p > other.p || (p == other.p && expert < other.expert));
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

// Returns the last of the `chosen` experts that rank first, or none if the probabilities are NaN.
template <class W>
__device__ Ranked<W> last_chosen(const W* p, int experts, int chosen) {
  Ranked<W> last{0, -1};
  for (int k = 0; k < chosen; ++k) {
    Ranked<W> best{0, -1};
    for (int e = WarpRows::rank(); e < experts; e += kWarpThreads) {
      const Ranked<W> here{p[e], e};
      if (here.p == here.p && (k == 0 || last.before(here)) && here.before(best)) best = here;
    }
    for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      const Ranked<W> other{__shfl_xor_sync(~0u, best.p, mask), __shfl_xor_sync(~0u, best.expert, mask)};
      if (other.before(best)) best = other;
    }
    last = best;
    if (last.expert < 0) break;
  }
  return last;
}

// Writes the chosen experts in ascending order of their indices, and their weights: the expert `last` and all that rank before it. If
// `last` is none, the first experts are chosen.
template <class W>
__device__ void write_chosen(const W* p, const Ranked<W>& last, int experts, int chosen, bool normalised, i32* choice, W* weight) {
  int count = 0;
  W sum = 0;
  for (int first = 0; first < experts && count < chosen; first += kWarpThreads) {
    const int e = first + WarpRows::rank();
    const Ranked<W> here{e < experts ? p[e] : 0, e};
    const bool is_chosen = e < experts && !last.before(here);
    const u32 all = __ballot_sync(~0u, is_chosen);
    const int k = count + __popc(all & ((1u << WarpRows::rank()) - 1));
    count += __popc(all);
    if (!is_chosen || k >= chosen) continue;
    choice[k] = here.expert;
    weight[k] = here.p;
    sum += here.p;
  }
  if (!normalised) return;
  sum = WarpRows::fold(sum, Plus());
  __syncwarp();  // waits until the weights have been written
  for (int k = WarpRows::rank(); k < chosen; k += kWarpThreads) weight[k] /= sum;
}

template <class T>
__global__ void route_tokens(i64 tokens, int experts, int chosen, bool normalised, const T* logits, Wide<T>* probabilities, i32* choice,
                             Wide<T>* weight) {
  for (i64 n = WarpRows::first(); n < tokens; n += WarpRows::step()) {
    Wide<T>* const p = probabilities + n * experts;
    softmax(logits + n * experts, experts, p);
    write_chosen(p, last_chosen(p, experts, chosen), experts, chosen, normalised, choice + n * chosen, weight + n * chosen);
  }
}

template <class T>
struct Gradient {
  i64 tokens;
  int experts, chosen;
  bool normalised;
  const Wide<T>* p;
  const i32* choice;
  const Wide<T>*weight, *dweight;
  const double* choices;  // of the load; null if there is no load-balancing loss
  const i32* target;
  double factor;
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
    const auto of_load = [&](int e) { return balances ? static_cast<W>(g.factor * g.choices[e]) : W(0); };
    W mean = 0, mean_of_load = 0;
    for (int k = WarpRows::rank(); k < g.chosen; k += kWarpThreads) mean += weight[k] * dweight[k];
    for (int e = WarpRows::rank(); balances && e < g.experts; e += kWarpThreads) mean_of_load += p[e] * of_load(e);
    mean = WarpRows::fold(mean, Plus());
    mean_of_load = WarpRows::fold(mean_of_load, Plus());
    for (int e = WarpRows::rank(); e < g.experts; e += kWarpThreads) {
      W d = g.normalised ? W(0) : -p[e] * mean;
      for (int k = 0; k < g.chosen; ++k) {
        if (choice[k] == e) d = weight[k] * (dweight[k] - mean);
      }
      g.dlogits[n * g.experts + e] = narrow<T>(balances ? d + p[e] * (of_load(e) - mean_of_load) : d);
    }
  }
}

dim3 blocks_for_tokens(i64 tokens) { return blocks_for_tasks(ceil_div(tokens, i64{WarpRows::kRowsOfBlock})); }

}  // namespace

void router(const Tensor& logits, bool normalised, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  for_dtype("router", logits.dtype(), [&]<class T>(T) {
    const i64 tokens = logits.size(0);
    launch("router", route_tokens<T>, blocks_for_tokens(tokens), dim3(kBlockThreads), tokens, static_cast<int>(logits.size(1)),
           static_cast<int>(experts.size(1)), normalised, logits.data<T>(), probabilities.data<Wide<T>>(), experts.data<i32>(),
           weights.data<Wide<T>>());
  });
}

void router_gradient(const Tensor& probabilities, const Tensor& experts, const Tensor& weights, const Tensor& dweights, bool normalised,
                     const RouterLoad& load, const Tensor& dlogits) {
  for_dtype("router_gradient", dlogits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 tokens = dlogits.size(0);
    launch("router_gradient", route_gradients<T>, blocks_for_tokens(tokens), dim3(kBlockThreads),
           Gradient<T>{tokens, static_cast<int>(dlogits.size(1)), static_cast<int>(experts.size(1)), normalised, probabilities.data<W>(),
                       experts.data<i32>(), weights.data<W>(), dweights.data<W>(), data_or_null<double>(load.load_2E),
                       data_or_null<i32>(load.targets_N), load.factor, dlogits.data<T>()});
  });
}

}  // namespace spillway::kernels::cuda
