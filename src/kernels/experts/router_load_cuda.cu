#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/router_load.h"
#include "tensor/batch.h"

namespace spillway::kernels::cuda {
namespace {

// Adds one layer to the load. Each thread block sums the choices and probabilities of one expert at a time.
template <class T>
__global__ void sum_probabilities(i64 tokens, i64 experts, i64 chosen, const T* p, const i32* choice, const i32* target, double* choices,
                                  double* sums) {
  __shared__ double part[kBlockThreads];
  __shared__ i64 counted[kBlockThreads];
  for (i64 e = blockIdx.x; e < experts; e += gridDim.x) {
    double sum = 0;
    i64 count = 0;
    for (i64 n = threadIdx.x; n < tokens; n += blockDim.x) {
      if (target != nullptr && target[n] == kPaddingTarget) continue;
      sum += static_cast<double>(p[n * experts + e]);
      for (i64 k = 0; k < chosen; ++k) count += choice[n * chosen + k] == e;
    }
    part[threadIdx.x] = sum;
    counted[threadIdx.x] = count;
    __syncthreads();
    for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        part[threadIdx.x] += part[threadIdx.x + half];
        counted[threadIdx.x] += counted[threadIdx.x + half];
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      choices[e] += static_cast<double>(counted[0]);
      sums[e] += part[0];
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
  const dim3 blocks(static_cast<unsigned>(std::min<i64>(count, 1024)));
  const auto of = [&]<class T>(T) {
    launch("router load", sum_probabilities<T>, blocks, dim3(kBlockThreads), probabilities.size(0), count, experts.size(1),
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
