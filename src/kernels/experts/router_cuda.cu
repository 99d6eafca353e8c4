#include <cmath>

#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/router.h"
#include "kernels/experts/router_rows.h"
#include "tensor/batch.h"

// The routing kernels for a GPU; one thread handles one token.
namespace spillway::kernels::cuda {
namespace {

template <class T>
__global__ void route_tokens(i64 tokens, i64 experts, i64 chosen, bool normalised, const T* logits, Wide<T>* p, i32* choice,
                             Wide<T>* weight) {
  using W = Wide<T>;
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 n = i64{blockIdx.x} * blockDim.x + threadIdx.x; n < tokens; n += step) {
    const T* from = logits + n * experts;
    W* row = p + n * experts;
    W largest = widen(from[0]), sum = 0;
    for (i64 e = 1; e < experts; ++e) largest = largest < widen(from[e]) ? widen(from[e]) : largest;
    for (i64 e = 0; e < experts; ++e) sum += row[e] = std::exp(widen(from[e]) - largest);
    for (i64 e = 0; e < experts; ++e) row[e] /= sum;
    choose_experts(row, experts, chosen, normalised, choice + n * chosen, weight + n * chosen);
  }
}

template <class T>
__global__ void route_gradients(i64 tokens, i64 experts, i64 chosen, bool normalised, const Wide<T>* p, const i32* choice,
                                const Wide<T>* weight, const Wide<T>* dweight, const double* choices, const i32* target, double factor,
                                T* dlogits) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 n = i64{blockIdx.x} * blockDim.x + threadIdx.x; n < tokens; n += step) {
    const bool is_padding = target != nullptr && target[n] == kPaddingTarget;
    choice_gradient(p + n * experts, choice + n * chosen, weight + n * chosen, dweight + n * chosen, experts, chosen, normalised,
                    is_padding ? nullptr : choices, factor, dlogits + n * experts);
  }
}

}  // namespace

void router(const Tensor& logits, bool normalised, const Tensor& probabilities, const Tensor& experts, const Tensor& weights) {
  for_dtype("router", logits.dtype(), [&]<class T>(T) {
    const i64 tokens = logits.size(0);
    launch("router", route_tokens<T>, blocks_for(tokens), dim3(kBlockThreads), tokens, logits.size(1), experts.size(1), normalised,
           logits.data<T>(), probabilities.data<Wide<T>>(), experts.data<i32>(), weights.data<Wide<T>>());
  });
}

void router_gradient(const Tensor& probabilities, const Tensor& experts, const Tensor& weights, const Tensor& dweights, bool normalised,
                     const RouterLoad& load, const Tensor& dlogits) {
  for_dtype("router_gradient", dlogits.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 tokens = dlogits.size(0);
    launch("router_gradient", route_gradients<T>, blocks_for(tokens), dim3(kBlockThreads), tokens, dlogits.size(1), experts.size(1),
           normalised, probabilities.data<W>(), experts.data<i32>(), weights.data<W>(), dweights.data<W>(),
           load.load_2E.defined() ? load.load_2E.data<double>() : nullptr, load.targets_N.defined() ? load.targets_N.data<i32>() : nullptr,
           load.factor, dlogits.data<T>());
  });
}

}  // namespace spillway::kernels::cuda
