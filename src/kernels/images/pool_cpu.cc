#include "kernels/images/pool.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 14;  // the approximate number of elements of a task

void check(const Tensor& x, const Tensor& y) {
  require(x.rank() == 4 && y.rank() == 4 && x.size(0) == y.size(0) && x.size(1) == y.size(1) && x.elems() > 0 && y.elems() > 0,
          "[pool] expected x[N, C, H, W] and y[N, C, Ho, Wo]");
  require(x.is_contiguous() && y.is_contiguous() && x.dtype() == y.dtype(), "[pool] expected contiguous x and y of the same dtype");
}

void check(const Tensor& x, const Window& window, const Tensor& y) {
  check(x, y);
  require(window.dilation == Pair(1), "[pool] expected a window without dilation, that is, a dilation of 1");
  require(window.padding.h * 2 <= window.kernel.h && window.padding.w * 2 <= window.kernel.w,
          "[pool] expected a padding of at most half the kernel, so that each window overlaps the image");
  require(positions_of("pool", window, {x.size(2), x.size(3)}) == Pair(y.size(2), y.size(3)),
          "[pool] expected a y with as many rows and columns as the window has positions over x");
}

// Calls body(plane) for the plane of each image and channel, by its index.
void for_planes(const Tensor& x, const std::function<void(i64)>& body) {
  const i64 plane = x.size(2) * x.size(3);
  Stream::current().for_ranges(x.elems() / plane, std::max<i64>(1, kGrain / plane), [&](i64 begin, i64 end) {
    for (i64 p = begin; p < end; ++p) body(p);
  });
}

// Compares one element of each window at columns [begin, end) with the largest so far. The window at column 0 reads element `from` of the
// plane, and each further window an element `stride` further. There is no branch, because both outcomes of the comparison are equally
// likely and a branch would often be mispredicted.
template <class T>
inline __attribute__((always_inline)) void take_tap(const T* __restrict x, i64 from, i64 stride, i64 begin, i64 end, T* __restrict y,
                                                    i32* __restrict index) {
  for (i64 j = begin; j < end; ++j) {
    const i64 at = from + j * stride;
    const Wide<T> value = widen(x[at]);
    const bool better = (value > widen(y[j])) | (value != value);
    y[j] = better ? x[at] : y[j];
    index[j] = better ? static_cast<i32>(at) : index[j];
  }
}

// Computes n adjacent windows of 2 x 2 elements with stride 2. The first window begins at element `from`
// of the plane, whose rows have `extent` elements. Elements are compared as in take_tap(), in its order.
template <class T>
inline __attribute__((always_inline)) void take_pairs(const T* __restrict x, i64 from, i64 extent, i64 n, T* __restrict y,
                                                      i32* __restrict index) {
  const T* __restrict upper = x + from, * __restrict lower = upper + extent;
  for (i64 j = 0; j < n; ++j) {
    T best = upper[2 * j];
    i32 at = static_cast<i32>(from + 2 * j);
    const auto take = [&](T value, i64 place) {
      const bool better = (widen(value) > widen(best)) | (widen(value) != widen(value));
      best = better ? value : best;
      at = better ? static_cast<i32>(place) : at;
    };
    take(upper[2 * j + 1], from + 2 * j + 1);
    take(lower[2 * j], from + extent + 2 * j);
    take(lower[2 * j + 1], from + extent + 2 * j + 1);
    y[j] = best;
    index[j] = at;
  }
}

// Computes a row of sliding windows, for all windows at once: one element of each window after the other.
template <class T>
void max_row(const T* x, Range rows, const PoolAxis& w, T* y, i32* index) {
  if (w.kernel == 2 && w.stride == 2 && w.padding == 0 && rows.end - rows.begin == 2) {
    return take_pairs(x, rows.begin * w.extent, w.extent, w.positions, y, index);
  }
  for (i64 j = 0; j < w.positions; ++j) {
    index[j] = static_cast<i32>(rows.begin * w.extent + w.covered(j).begin);
    y[j] = x[index[j]];
  }
  for (i64 row = rows.begin; row < rows.end; ++row) {
    for (i64 tap = 0; tap < w.kernel; ++tap) {
      const i64 first = tap - w.padding, begin = std::min(w.positions, first < 0 ? ceil_div(-first, w.stride) : 0);
      const i64 end = std::clamp<i64>(w.extent > first ? ceil_div(w.extent - first, w.stride) : 0, begin, w.positions);
      const i64 from = row * w.extent + first;
      w.stride == 2 ? take_tap(x, from, 2, begin, end, y, index) : take_tap(x, from, w.stride, begin, end, y, index);
    }
  }
}

template <class T>
void max_plane(const T* x, const PoolAxis& h, const PoolAxis& w, T* y, i32* index) {
  if (w.kernel > 0) {
    for (i64 i = 0; i < h.positions; ++i) max_row(x, h.covered(i), w, y + i * w.positions, index + i * w.positions);
    return;
  }
  for (i64 i = 0; i < h.positions; ++i) {
    const Range rows = h.covered(i);
    for (i64 j = 0; j < w.positions; ++j) {
      const Range columns = w.covered(j);
      i64 best = rows.begin * w.extent + columns.begin;
      Wide<T> most = widen(x[best]);
      for (i64 row = rows.begin; row < rows.end; ++row) {
        for (i64 at = row * w.extent + columns.begin; at < row * w.extent + columns.end; ++at) {
          const Wide<T> value = widen(x[at]);
          // computed without a branch, because both outcomes are equally likely and a branch would often be mispredicted
          const bool better = (value > most) | (value != value);
          most = better ? value : most;
          best = better ? at : best;
        }
      }
      *y++ = x[best];
      *index++ = static_cast<i32>(best);
    }
  }
}

// Computes dx for a narrow dtype. Adding each window to dx would round the sum each time. So
// for each element of dx the windows that cover it are searched, and their sum is rounded once.
template <class T>
void gather_maxima(const T* dy, const i32* index, const PoolAxis& h, const PoolAxis& w, T* dx) {
  for (i64 row = 0; row < h.extent; ++row) {
    const Range rows = h.covering(row);
    for (i64 column = 0; column < w.extent; ++column) {
      const Range columns = w.covering(column);
      const i64 here = row * w.extent + column;
      Wide<T> sum = 0;
      for (i64 i = rows.begin; i < rows.end; ++i) {
        for (i64 at = i * w.positions + columns.begin; at < i * w.positions + columns.end; ++at) {
          if (index[at] == here) sum += widen(dy[at]);
        }
      }
      dx[here] = narrow<T>(sum);
    }
  }
}

template <class T>
void max_plane_gradient(const T* dy, const i32* index, const PoolAxis& h, const PoolAxis& w, T* dx) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    std::fill(dx, dx + h.extent * w.extent, T(0));
    for (i64 at = 0; at < h.positions * w.positions; ++at) dx[index[at]] += dy[at];
  } else {
    gather_maxima(dy, index, h, w, dx);
  }
}

template <class T>
void mean_plane(const T* x, const PoolAxis& h, const PoolAxis& w, T* y) {
  for (i64 i = 0; i < h.positions; ++i) {
    const Range rows = h.covered(i);
    for (i64 j = 0; j < w.positions; ++j) {
      const Range columns = w.covered(j);
      Wide<T> sum = 0;
      for (i64 row = rows.begin; row < rows.end; ++row) {
        for (i64 at = row * w.extent + columns.begin; at < row * w.extent + columns.end; ++at) sum += widen(x[at]);
      }
      *y++ = narrow<T>(sum / static_cast<Wide<T>>(h.counted(i) * w.counted(j)));
    }
  }
}

template <class T>
void mean_plane_gradient(const T* dy, const PoolAxis& h, const PoolAxis& w, T* dx) {
  for (i64 row = 0; row < h.extent; ++row) {
    const Range rows = h.covering(row);
    for (i64 column = 0; column < w.extent; ++column) {
      const Range columns = w.covering(column);
      Wide<T> sum = 0;
      for (i64 i = rows.begin; i < rows.end; ++i) {
        for (i64 j = columns.begin; j < columns.end; ++j) {
          sum += widen(dy[i * w.positions + j]) / static_cast<Wide<T>>(h.counted(i) * w.counted(j));
        }
      }
      *dx++ = narrow<T>(sum);
    }
  }
}

PoolAxes axes_of(const Window& window, const Tensor& x, const Tensor& y, bool counts_padding = true) {
  return {window, {x.size(2), x.size(3)}, {y.size(2), y.size(3)}, counts_padding};
}
PoolAxes even_axes(const Tensor& x, const Tensor& y) { return {{x.size(2), x.size(3)}, {y.size(2), y.size(3)}}; }

void check_index(const Tensor& x, const Tensor& y, const Tensor& index) {
  require(index.shape() == y.shape() && index.is_contiguous() && x.size(2) * x.size(3) <= INT32_MAX,
          "[max_pool] expected a contiguous index of y's shape, and image planes of fewer than 2^31 elements");
}

void maxima(const Tensor& x, const PoolAxes& axes, const Tensor& y, const Tensor& index) {
  check_index(x, y, index);
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, max_pool(x, axes, y, index));
  i32* places = index.data<i32>();
  for_dtype("max_pool", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i64 in = axes.h.extent * axes.w.extent, out = axes.h.positions * axes.w.positions;
    for_planes(x, [&](i64 p) { max_plane(from + p * in, axes.h, axes.w, to + p * out, places + p * out); });
  });
}

void maxima_gradient(const Tensor& dy, const Tensor& index, const PoolAxes& axes, const Tensor& dx) {
  check_index(dx, dy, index);
  if (dx.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dx, max_pool_gradient(dy, index, axes, dx));
  const i32* places = index.data<i32>();
  for_dtype("max_pool", dx.dtype(), [&]<class T>(T) {
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    const i64 in = axes.h.extent * axes.w.extent, out = axes.h.positions * axes.w.positions;
    for_planes(dx, [&](i64 p) { max_plane_gradient(from + p * out, places + p * out, axes.h, axes.w, to + p * in); });
  });
}

void means(const Tensor& x, const PoolAxes& axes, const Tensor& y) {
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, avg_pool(x, axes, y));
  for_dtype("avg_pool", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i64 in = axes.h.extent * axes.w.extent, out = axes.h.positions * axes.w.positions;
    for_planes(x, [&](i64 p) { mean_plane(from + p * in, axes.h, axes.w, to + p * out); });
  });
}

void means_gradient(const Tensor& dy, const PoolAxes& axes, const Tensor& dx) {
  if (dx.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dx, avg_pool_gradient(dy, axes, dx));
  for_dtype("avg_pool", dx.dtype(), [&]<class T>(T) {
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    const i64 in = axes.h.extent * axes.w.extent, out = axes.h.positions * axes.w.positions;
    for_planes(dx, [&](i64 p) { mean_plane_gradient(from + p * out, axes.h, axes.w, to + p * in); });
  });
}

}  // namespace

void max_pool(const Tensor& x, const Window& window, const Tensor& y, const Tensor& index) {
  check(x, window, y);
  maxima(x, axes_of(window, x, y), y, index);
}
void max_pool_gradient(const Tensor& dy, const Tensor& index, const Window& window, const Tensor& dx) {
  check(dx, window, dy);
  maxima_gradient(dy, index, axes_of(window, dx, dy), dx);
}

void avg_pool(const Tensor& x, const Window& window, bool counts_padding, const Tensor& y) {
  check(x, window, y);
  means(x, axes_of(window, x, y, counts_padding), y);
}
void avg_pool_gradient(const Tensor& dy, const Window& window, bool counts_padding, const Tensor& dx) {
  check(dx, window, dy);
  means_gradient(dy, axes_of(window, dx, dy, counts_padding), dx);
}

void adaptive_max_pool(const Tensor& x, const Tensor& y, const Tensor& index) {
  check(x, y);
  maxima(x, even_axes(x, y), y, index);
}
void adaptive_max_pool_gradient(const Tensor& dy, const Tensor& index, const Tensor& dx) {
  check(dx, dy);
  maxima_gradient(dy, index, even_axes(dx, dy), dx);
}

void adaptive_avg_pool(const Tensor& x, const Tensor& y) {
  check(x, y);
  means(x, even_axes(x, y), y);
}
void adaptive_avg_pool_gradient(const Tensor& dy, const Tensor& dx) {
  check(dx, dy);
  means_gradient(dy, even_axes(dx, dy), dx);
}

}  // namespace spillway::kernels
