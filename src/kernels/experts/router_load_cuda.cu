#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/router_load.h"
#include "tensor/batch.h"

namespace spillway::kernels::cuda {
namespace {

// the number of experts that a thread block sums at a time, and of the tokens that it goes over at a time
constexpr int kExperts = 8, kTokens = 128, kThreads = kExperts * kTokens;

// Adds one layer to the load. A warp reads the probabilities of eight adjacent experts, which fill whole 32-byte sectors, for four tokens.
// Each thread sums every kTokens-th token; then a tree adds the sums of an expert.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_probabilities(i64 tokens, i64 experts, i64 chosen, const T* p, const i32* choice,
                                                              const i32* target, double* choices, double* sums) {
  __shared__ double part[kThreads];
  __shared__ i32 counted[kExperts];
  const int thread = static_cast<int>(threadIdx.x), of_block = thread % kExperts;
  const auto is_padding = [=](i64 n) { return target != nullptr && target[n] == kPaddingTarget; };
  for (i64 first = i64{blockIdx.x} * kExperts; first < experts; first += i64{gridDim.x} * kExperts) {
    const i64 e = first + of_block;
    double sum = 0;
    for (i64 n = thread / kExperts; n < tokens; n += kTokens) {
      if (e < experts && !is_padding(n)) sum += static_cast<double>(p[n * experts + e]);
    }
    part[thread] = sum;
    if (thread < kExperts) counted[thread] = 0;
    __syncthreads();
    for (i64 c = thread; c < tokens * chosen; c += kThreads) {
      const i64 at = choice[c] - first;
      if (0 <= at && at < kExperts && !is_padding(c / chosen)) atomicAdd(&counted[at], 1);
    }
    for (int half = kThreads / 2; half >= kExperts; half /= 2) {
      if (thread < half) part[thread] += part[thread + half];
      __syncthreads();
    }
    if (thread < kExperts && e < experts) {
      choices[e] += static_cast<double>(counted[thread]);
      sums[e] += part[thread];
    }
    __syncthreads();
  }
}

__global__ void add_products(i64 experts, const double* choices, const double* sums, double factor, double* loss) {
  double sum = 0;
  for (i64 e = 0; e < experts; ++e) sum += choices[e] * sums[e];
  *loss += factor * sum;
}

}  // namespace

void add_router_load(const Tensor& probabilities, const Tensor& experts, const Tensor& targets, const Tensor& load) {
  const i64 count = probabilities.size(1);
  double* choices = load.data<double>();
  const i32* target = data_or_null<i32>(targets);
  const dim3 blocks(static_cast<unsigned>(ceil_div(count, i64{kExperts})));
  const auto of = [&]<class T>(T) {
    launch("router load", sum_probabilities<T>, blocks, dim3(kThreads), probabilities.size(0), count, experts.size(1),
           probabilities.data<T>(), experts.data<i32>(), target, choices, choices + count);
  };
  probabilities.dtype() == DType::f64 ? of(double()) : of(float());
}

void add_router_loss(const Tensor& load, double factor, const Tensor& loss) {
  const i64 experts = load.size(1);
  const double* choices = load.data<double>();
  launch("router loss", add_products, dim3(1), dim3(1), experts, choices, choices + experts, factor, loss.data<double>());
}

}  // namespace spillway::kernels::cuda
