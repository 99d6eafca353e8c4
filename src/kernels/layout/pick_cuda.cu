#include "kernels/layout/pick.h"

#include <limits>

#include "kernels/dispatch.h"
#include "kernels/index_report_cuda.h"
#include "kernels/lanes_cuda.h"

namespace spillway::kernels::cuda {
namespace {

template <class T>
struct Gather {
  Axis axis;
  Picks picks;
  const T* x;
  const i32* index;
  T* out;
  IndexReport report;
  __device__ void operator()(i64 at) const {
    const i64 i = at % axis.inner, row = at / axis.inner, o = row / picks.count, k = row % picks.count;
    const i64 j = index[o * picks.outer + k * picks.step + i * picks.inner];
    const bool inside = 0 <= j && j < axis.n;
    if (!inside) report(j, axis.n);
    out[at] = inside ? x[(o * axis.n + j) * axis.inner + i] : narrow<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
  }
};

template <class T>
struct ScatterAdd {
  using W = Wide<T>;
  Axis axis;
  Picks picks;
  const T* from;
  const i32* index;
  W* to;
  IndexReport report;
  __device__ void operator()(i64 lane) const {
    const i64 o = lane / axis.inner, i = lane % axis.inner;
    W* const sums = to + first_of_lane(axis, lane);
    for (i64 k = 0; k < picks.count; ++k) {
      const i64 j = index[o * picks.outer + k * picks.step + i * picks.inner];
      if (0 <= j && j < axis.n) {
        sums[j * axis.inner] += widen(from[(o * picks.count + k) * axis.inner + i]);
      } else {
        report(j, axis.n);
        if (axis.n > 0) sums[0] = std::numeric_limits<W>::quiet_NaN();
      }
    }
  }
};

constexpr int kScatterThreads = 256;
constexpr int kScatterRows = 2048;   // the number of elements of a lane that a thread block adds to
constexpr int kScatterChunk = 1024;  // the number of indices that a thread block looks at together

// Adds to part of a lane: a thread block goes through all indices of the lane, and each thread adds what belongs to its own elements, in
// ascending order of k. So the sums are bitwise those of one thread.
template <class T>
__global__ void __launch_bounds__(kScatterThreads)
    scatter_add_parts(Axis axis, Picks picks, const T* from, const i32* index, Wide<T>* to, IndexReport report) {
  using W = Wide<T>;
  __shared__ i32 places[kScatterChunk];  // relative to the part; -1 for elements of other parts
  __shared__ W values[kScatterChunk], sums[kScatterRows];
  const int thread = static_cast<int>(threadIdx.x);
  const i64 parts = ceil_div(axis.n, i64{kScatterRows});
  for (i64 task = blockIdx.x; task < axis.lanes() * parts; task += gridDim.x) {
    const i64 lane = task / parts, o = lane / axis.inner, i = lane % axis.inner, begin = task % parts * kScatterRows;
    const int rows = static_cast<int>(min(i64{kScatterRows}, axis.n - begin));
    W* const part = to + first_of_lane(axis, lane) + begin * axis.inner;
    for (int j = thread; j < rows; j += kScatterThreads) sums[j] = part[j * axis.inner];
    for (i64 chunk = 0; chunk < picks.count; chunk += kScatterChunk) {
      const int count = static_cast<int>(min(i64{kScatterChunk}, picks.count - chunk));
      __syncthreads();  // waits until all threads have read the chunk before
      for (int k = thread; k < count; k += kScatterThreads) {
        const i64 j = index[o * picks.outer + (chunk + k) * picks.step + i * picks.inner];
        const bool inside = 0 <= j && j < axis.n;
        if (!inside && begin == 0) report(j, axis.n);
        const i64 place = (inside ? j : 0) - begin;
        const bool here = 0 <= place && place < rows;
        places[k] = here ? static_cast<i32>(place) : -1;
        if (here) {
          values[k] = inside ? widen(from[(o * picks.count + chunk + k) * axis.inner + i]) : std::numeric_limits<W>::quiet_NaN();
        }
      }
      __syncthreads();
      for (int k = 0; k < count; ++k) {
        if (places[k] >= 0 && places[k] % kScatterThreads == thread) sums[places[k]] += values[k];
      }
    }
    for (int j = thread; j < rows; j += kScatterThreads) part[j * axis.inner] = sums[j];
  }
}

}  // namespace

void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out) {
  for_dtype("gather", x.dtype(), [&]<class T>(T) {
    for_each_on_gpu("gather", out.elems(), Gather<T>{axis, picks, x.data<T>(), index.data<i32>(), out.data<T>(), IndexReport("gather")});
  });
}

void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to) {
  const IndexReport report("scatter_add");
  for_dtype("scatter_add", from.dtype(), [&]<class T>(T) {
    if (const i64 tasks = axis.lanes() * ceil_div(axis.n, i64{kScatterRows}); axis.lanes() < kFewLanes && tasks > 0) {
      return launch("scatter_add", scatter_add_parts<T>, dim3(static_cast<unsigned>(std::min<i64>(tasks, 1 << 20))), dim3(kScatterThreads),
                    axis, picks, from.data<T>(), index.data<i32>(), to.data<Wide<T>>(), report);
    }
    for_each_on_gpu("scatter_add", axis.lanes(), ScatterAdd<T>{axis, picks, from.data<T>(), index.data<i32>(), to.data<Wide<T>>(), report});
  });
}

}  // namespace spillway::kernels::cuda
