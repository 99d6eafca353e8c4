#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/router_load.h"

namespace spillway::kernels::cuda {
namespace {

// A block sums one expert's probabilities at a time.
template <class T>
__global__ void sum_probabilities(i64 tokens, i64 experts, const T* p, const i32* begin, double* choices, double* sums) {
  __shared__ double part[kBlockThreads];
  for (i64 e = blockIdx.x; e < experts; e += gridDim.x) {
    double sum = 0;
    for (i64 n = threadIdx.x; n < tokens; n += blockDim.x) sum += static_cast<double>(p[n * experts + e]);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      choices[e] += begin[e + 1] - begin[e];
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

void add_router_load(const Tensor& probabilities, const Tensor& begins, const Tensor& load) {
  const i64 tokens = probabilities.size(0), experts = probabilities.size(1);
  double* choices = load.data<double>();
  const dim3 blocks(static_cast<unsigned>(std::min<i64>(experts, 1024)));
  if (probabilities.dtype() == DType::f64) {
    launch("router load", sum_probabilities<double>, blocks, dim3(kBlockThreads), tokens, experts, probabilities.data<double>(),
           begins.data<i32>(), choices, choices + experts);
  } else {
    launch("router load", sum_probabilities<float>, blocks, dim3(kBlockThreads), tokens, experts, probabilities.data<float>(),
           begins.data<i32>(), choices, choices + experts);
  }
}

void add_router_loss(const Tensor& load, double factor, const Tensor& loss) {
  const i64 experts = load.size(1);
  const double* choices = load.data<double>();
  launch("router loss", add_products, dim3(1), dim3(1), experts, choices, choices + experts, factor, loss.data<double>());
}

}  // namespace spillway::kernels::cuda
