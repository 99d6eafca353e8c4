#include "kernels/dispatch.h"
#include "kernels/experts/router_load.h"
#include "kernels/has_cuda.h"
#include "tensor/batch.h"

namespace spillway::kernels {

void add_router_load(const Tensor& probabilities, const Tensor& experts, const Tensor& targets, const Tensor& load) {
  const bool shapes = probabilities.rank() == 2 && experts.rank() == 2 && experts.size(0) == probabilities.size(0) &&
                      load.shape() == Shape{2, probabilities.size(1)} &&
                      (!targets.defined() || (targets.shape() == Shape{probabilities.size(0)} && targets.dtype() == DType::int32));
  require(shapes && load.dtype() == DType::f64 && experts.dtype() == DType::int32 && probabilities.is_contiguous() &&
              experts.is_contiguous() && (!targets.defined() || targets.is_contiguous()),
          "[router load] expected probabilities [N, E], int32 experts [N, K], int32 targets [N] or none, and a load [2, E] of f64");
  if (load.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(load, add_router_load(probabilities, experts, targets, load));
  for_dtype("router load", probabilities.dtype(), [&]<class T>(T) {
    const i64 N = probabilities.size(0), E = probabilities.size(1), K = experts.size(1);
    const T* p = probabilities.data<T>();
    const i32 *choice = experts.data<i32>(), *target = data_or_null<i32>(targets);
    double *choices = load.data<double>(), *sums = choices + E;
    Stream::current().for_ranges(E, 16, [=](i64 first, i64 last) {
      for (i64 e = first; e < last; ++e) {
        double sum = 0;
        i64 chosen = 0;
        for (i64 n = 0; n < N; ++n) {
          if (target != nullptr && target[n] == kPaddingTarget) continue;
          sum += static_cast<double>(widen(p[n * E + e]));
          for (i64 k = 0; k < K; ++k) chosen += choice[n * K + k] == e;
        }
        choices[e] += static_cast<double>(chosen);
        sums[e] += sum;
      }
    });
  });
}

void add_router_loss(const Tensor& load, double factor, const Tensor& loss) {
  require(load.rank() == 2 && load.dtype() == DType::f64 && loss.dtype() == DType::f64 && loss.elems() == 1,
          "[router loss] expected a load [2, E] and a loss of f64");
  if (loss.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(loss, add_router_loss(load, factor, loss));
  const i64 E = load.size(1);
  const double *choices = load.data<double>(), *sums = choices + E;
  double sum = 0;
  for (i64 e = 0; e < E; ++e) sum += choices[e] * sums[e];
  *loss.data<double>() += factor * sum;
}

}  // namespace spillway::kernels
