#include "kernels/dispatch.h"
#include "kernels/experts/router_load.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {

void add_router_load(const Tensor& probabilities, const Tensor& begins, const Tensor& load) {
  const bool shapes =
      probabilities.rank() == 2 && begins.shape() == Shape{probabilities.size(1) + 1} && load.shape() == Shape{2, probabilities.size(1)};
  require(shapes && load.dtype() == DType::f64 && begins.dtype() == DType::int32 && probabilities.is_contiguous(),
          "[router load] expected probabilities [N, E], int32 begins [E + 1] and a load [2, E] of f64");
  if (load.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (load.device().is_cuda()) return cuda::add_router_load(probabilities, begins, load);
  }
  for_dtype("router load", probabilities.dtype(), [&]<class T>(T) {
    const i64 N = probabilities.size(0), E = probabilities.size(1);
    const T* p = probabilities.data<T>();
    const i32* begin = begins.data<i32>();
    double *choices = load.data<double>(), *sums = choices + E;
    Stream::current().for_ranges(E, 16, [=](i64 first, i64 last) {
      for (i64 e = first; e < last; ++e) {
        double sum = 0;
        for (i64 n = 0; n < N; ++n) sum += static_cast<double>(widen(p[n * E + e]));
        choices[e] += begin[e + 1] - begin[e];
        sums[e] += sum;
      }
    });
  });
}

void add_router_loss(const Tensor& load, double factor, const Tensor& loss) {
  require(load.rank() == 2 && load.dtype() == DType::f64 && loss.dtype() == DType::f64 && loss.elems() == 1,
          "[router loss] expected a load [2, E] and a loss of f64");
  if (loss.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (loss.device().is_cuda()) return cuda::add_router_loss(load, factor, loss);
  }
  const i64 E = load.size(1);
  const double *choices = load.data<double>(), *sums = choices + E;
  double sum = 0;
  for (i64 e = 0; e < E; ++e) sum += choices[e] * sums[e];
  *loss.data<double>() += factor * sum;
}

}  // namespace spillway::kernels
