// Pooling on a GPU. One thread computes each element of the result, in the CPU's order, so GPU and CPU give bitwise equal results.
#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/images/pool.h"

namespace spillway::kernels::cuda {
namespace {

// Calls f(plane, row, column, index) for those of n elements that this thread computes. The elements lie in planes of rows x columns.
template <class F>
__device__ void for_elements(i64 n, i64 rows, i64 columns, F f) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 at = i64{blockIdx.x} * blockDim.x + threadIdx.x; at < n; at += step) {
    const i64 line = at / columns;
    f(line / rows, line % rows, at % columns, at);
  }
}

template <class T>
__global__ void maxima(i64 n, const T* all, PoolAxis h, PoolAxis w, T* y, i32* index) {
  for_elements(n, h.positions, w.positions, [&](i64 p, i64 i, i64 j, i64 to) {
    const T* x = all + p * h.extent * w.extent;
    const Range rows = h.covered(i), columns = w.covered(j);
    i64 best = rows.begin * w.extent + columns.begin;
    Wide<T> most = widen(x[best]);
    for (i64 row = rows.begin; row < rows.end; ++row) {
      for (i64 at = row * w.extent + columns.begin; at < row * w.extent + columns.end; ++at) {
        const Wide<T> value = widen(x[at]);
        const bool better = value > most || value != value;
        most = better ? value : most;
        best = better ? at : best;
      }
    }
    y[to] = x[best];
    index[to] = static_cast<i32>(best);
  });
}

template <class T>
__global__ void maxima_gradient(i64 n, const T* all, const i32* indices, PoolAxis h, PoolAxis w, T* dx) {
  for_elements(n, h.extent, w.extent, [&](i64 p, i64 row, i64 column, i64 to) {
    const T* dy = all + p * h.positions * w.positions;
    const i32* index = indices + p * h.positions * w.positions;
    const Range rows = h.covering(row), columns = w.covering(column);
    Wide<T> sum = 0;
    for (i64 i = rows.begin; i < rows.end; ++i) {
      for (i64 at = i * w.positions + columns.begin; at < i * w.positions + columns.end; ++at) {
        if (index[at] == row * w.extent + column) sum += widen(dy[at]);
      }
    }
    dx[to] = narrow<T>(sum);
  });
}

template <class T>
__global__ void means(i64 n, const T* all, PoolAxis h, PoolAxis w, T* y) {
  for_elements(n, h.positions, w.positions, [&](i64 p, i64 i, i64 j, i64 to) {
    const T* x = all + p * h.extent * w.extent;
    const Range rows = h.covered(i), columns = w.covered(j);
    Wide<T> sum = 0;
    for (i64 row = rows.begin; row < rows.end; ++row) {
      for (i64 at = row * w.extent + columns.begin; at < row * w.extent + columns.end; ++at) sum += widen(x[at]);
    }
    y[to] = narrow<T>(sum / static_cast<Wide<T>>(h.counted(i) * w.counted(j)));
  });
}

template <class T>
__global__ void means_gradient(i64 n, const T* all, PoolAxis h, PoolAxis w, T* dx) {
  for_elements(n, h.extent, w.extent, [&](i64 p, i64 row, i64 column, i64 to) {
    const T* dy = all + p * h.positions * w.positions;
    const Range rows = h.covering(row), columns = w.covering(column);
    Wide<T> sum = 0;
    for (i64 i = rows.begin; i < rows.end; ++i) {
      for (i64 j = columns.begin; j < columns.end; ++j) {
        sum += widen(dy[i * w.positions + j]) / static_cast<Wide<T>>(h.counted(i) * w.counted(j));
      }
    }
    dx[to] = narrow<T>(sum);
  });
}

}  // namespace

void max_pool(const Tensor& x, const PoolAxes& axes, const Tensor& y, const Tensor& index) {
  for_dtype("max_pool", x.dtype(), [&]<class T>(T) {
    launch("max_pool", maxima<T>, blocks_for(y.elems()), dim3(kBlockThreads), y.elems(), x.data<T>(), axes.h, axes.w, y.data<T>(),
           index.data<i32>());
  });
}
void max_pool_gradient(const Tensor& dy, const Tensor& index, const PoolAxes& axes, const Tensor& dx) {
  for_dtype("max_pool", dx.dtype(), [&]<class T>(T) {
    launch("max_pool", maxima_gradient<T>, blocks_for(dx.elems()), dim3(kBlockThreads), dx.elems(), dy.data<T>(), index.data<i32>(), axes.h,
           axes.w, dx.data<T>());
  });
}

void avg_pool(const Tensor& x, const PoolAxes& axes, const Tensor& y) {
  for_dtype("avg_pool", x.dtype(), [&]<class T>(T) {
    launch("avg_pool", means<T>, blocks_for(y.elems()), dim3(kBlockThreads), y.elems(), x.data<T>(), axes.h, axes.w, y.data<T>());
  });
}
void avg_pool_gradient(const Tensor& dy, const PoolAxes& axes, const Tensor& dx) {
  for_dtype("avg_pool", dx.dtype(), [&]<class T>(T) {
    launch("avg_pool", means_gradient<T>, blocks_for(dx.elems()), dim3(kBlockThreads), dx.elems(), dy.data<T>(), axes.h, axes.w,
           dx.data<T>());
  });
}

}  // namespace spillway::kernels::cuda
