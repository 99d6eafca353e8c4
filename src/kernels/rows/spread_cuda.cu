#include "kernels/rows/spread.h"

#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"

namespace spillway::kernels::cuda {
namespace {

template <class T>
struct Variance {
  const T* x;
  double correction;
  Wide<T>* mean;
  T* y;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    double sum = 0, squares = 0;
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) sum += static_cast<double>(widen(x[first + j * axis.inner]));
    const double centre = Rows::fold(sum, Plus()) / static_cast<double>(axis.n);
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const double d = static_cast<double>(widen(x[first + j * axis.inner])) - centre;
      squares += d * d;
    }
    squares = Rows::fold(squares, Plus());
    if (Rows::rank() != 0) return;
    mean[lane] = static_cast<Wide<T>>(centre);
    y[lane] = narrow<T>(static_cast<Wide<T>>(squares / (static_cast<double>(axis.n) - correction)));
  }
};

template <class T>
struct VarianceGradient {
  using W = Wide<T>;
  const T *x, *dy;
  const W* mean;
  W factor;
  T* dx;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const W slope = widen(dy[lane]) * factor, centre = mean[lane];
    for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
      const i64 at = first + j * axis.inner;
      dx[at] = narrow<T>((widen(x[at]) - centre) * slope);
    }
  }
};

template <class T>
struct RunningSum {
  Axis axis;
  const T* x;
  bool backwards;
  T* y;
  __device__ void operator()(i64 lane) const {
    const i64 first = first_of_lane(axis, lane);
    double sum = 0;
    for (i64 i = 0; i < axis.n; ++i) {
      const i64 at = first + (backwards ? axis.n - 1 - i : i) * axis.inner;
      sum += static_cast<double>(widen(x[at]));
      y[at] = narrow<T>(static_cast<Wide<T>>(sum));
    }
  }
};

constexpr int kScanThreads = 256, kScanEach = 4;  // a thread block adds tiles of 1024 elements, of which each thread has 4

// Computes the running sum of a long lane by a thread block, tile after tile. The order of the additions depends on nothing but the length.
template <class T>
__global__ void __launch_bounds__(kScanThreads) scan_lanes(Axis axis, const T* x, bool backwards, T* y) {
  __shared__ double totals[kScanThreads];  // the sums of the elements of all threads up to and including this one
  const int thread = static_cast<int>(threadIdx.x);
  for (i64 lane = blockIdx.x; lane < axis.lanes(); lane += gridDim.x) {
    const i64 first = first_of_lane(axis, lane);
    const auto at = [&](i64 i) { return first + (backwards ? axis.n - 1 - i : i) * axis.inner; };
    double before = 0;  // the sum of all tiles before
    for (i64 tile = 0; tile < axis.n; tile += kScanThreads * kScanEach) {
      const i64 begin = tile + thread * kScanEach;
      double own[kScanEach], sum = 0;
      for (int e = 0; e < kScanEach; ++e) {
        if (begin + e < axis.n) sum += static_cast<double>(widen(x[at(begin + e)]));
        own[e] = sum;
      }
      totals[thread] = sum;
      for (int width = 1; width < kScanThreads; width *= 2) {
        __syncthreads();
        const double other = thread >= width ? totals[thread - width] : 0;
        __syncthreads();
        totals[thread] += other;
      }
      __syncthreads();
      const double earlier = before + (thread > 0 ? totals[thread - 1] : 0);
      for (int e = 0; e < kScanEach; ++e) {
        if (begin + e < axis.n) y[at(begin + e)] = narrow<T>(static_cast<Wide<T>>(earlier + own[e]));
      }
      before += totals[kScanThreads - 1];
      __syncthreads();  // waits until all threads have read the totals
    }
  }
}

}  // namespace

void variance(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& y) {
  for_dtype("variance", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("variance", axis, Variance<T>{x.data<T>(), correction, mean.data<Wide<T>>(), y.data<T>()});
  });
}

void variance_gradient(const Tensor& x, const Axis& axis, double correction, const Tensor& mean, const Tensor& dy, const Tensor& dx) {
  for_dtype("variance_gradient", x.dtype(), [&]<class T>(T) {
    const auto factor = static_cast<Wide<T>>(2 / (static_cast<double>(axis.n) - correction));
    for_lanes_on_gpu("variance_gradient", axis, VarianceGradient<T>{x.data<T>(), dy.data<T>(), mean.data<Wide<T>>(), factor, dx.data<T>()});
  });
}

void running_sum(const Tensor& x, const Axis& axis, bool backwards, const Tensor& y) {
  for_dtype("running_sum", x.dtype(), [&]<class T>(T) {
    if (axis.n > kWarpLane && axis.lanes() < kFewLanes) {
      return launch("running_sum", scan_lanes<T>, dim3(static_cast<unsigned>(axis.lanes())), dim3(kScanThreads), axis, x.data<T>(),
                    backwards, y.data<T>());
    }
    for_each_on_gpu("running_sum", axis.lanes(), RunningSum<T>{axis, x.data<T>(), backwards, y.data<T>()});
  });
}

}  // namespace spillway::kernels::cuda
