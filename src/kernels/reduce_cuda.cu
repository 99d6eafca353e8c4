#include "kernels/reduce.h"

#include <bit>

#include "kernels/dispatch.h"
#include "kernels/views_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kWarp = 32;

// Over the threads of a block, to the first: each warp by shuffles, then the first warp over theirs. A tree fixed by kThreads.
template <int kThreads>
__device__ double sum_block(double sum) {
  constexpr int kWarps = kThreads / kWarp;
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  if constexpr (kWarps > 1) {
    __shared__ double of_warp[kWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    sum = lane < kWarps ? of_warp[lane] : 0;
    for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    __syncthreads();  // until all have read of_warp
  }
  return sum;
}

// A block sums a row of n. Pack p of the row goes to thread p % kThreads and its elements to as many running sums, which fold pairwise,
// whether or not the row can be loaded in packs.
template <int kThreads, int kCount, class T, class Out>
__global__ void __launch_bounds__(kThreads) sum_rows(const T* from, i64 rows, i64 n, double factor, bool aligned, Out* to) {
  const i64 whole = n / kCount;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x = from + row * n;
    double sums[kCount] = {};
    const auto add = [&](const Pack<T, kCount>& pack) {
      for (int i = 0; i < kCount; ++i) sums[i] += static_cast<double>(widen(pack.at[i]));
    };
    const auto add_one_by_one = [&](i64 p) {
      for (int i = 0; i < kCount; ++i) {
        if (p * kCount + i < n) sums[i] += static_cast<double>(widen(x[p * kCount + i]));
      }
    };
    if (aligned) {
      for (i64 p = threadIdx.x; p < whole; p += kThreads) add(load_pack<kCount>(x + p * kCount));
    } else {
      for (i64 p = threadIdx.x; p < whole; p += kThreads) add_one_by_one(p);
    }
    if (whole % kThreads == threadIdx.x) add_one_by_one(whole);
    for (int half = kCount / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    const double sum = sum_block<kThreads>(sums[0]);
    if (threadIdx.x == 0) to[row] = narrow<Out>(static_cast<Wide<Out>>(sum * factor));
  }
}

// A block sums `width` columns (a power of two) of one [n, inner] matrix: its threads are kThreads / width rows of them, whose sums fold
// pairwise.
template <int kThreads, class T, class Out>
__global__ void __launch_bounds__(kThreads) sum_columns(const T* from, i64 outer, i64 n, i64 inner, int width, double factor, Out* to) {
  __shared__ double sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x), x = thread % width, y = thread / width, side = kThreads / width;
  const i64 tiles = ceil_div(inner, width);
  for (i64 task = blockIdx.x; task < outer * tiles; task += gridDim.x) {
    const i64 o = task / tiles, column = task % tiles * width + x;
    double sum = 0;
    if (column < inner) {
      const T* const first = from + o * n * inner + column;
      for (i64 row = y; row < n; row += side) sum += static_cast<double>(widen(first[row * inner]));
    }
    sums[thread] = sum;
    __syncthreads();
    for (int half = side / 2; half > 0; half /= 2) {
      if (y < half) sums[thread] += sums[thread + half * width];
      __syncthreads();
    }
    if (y == 0 && column < inner) to[o * inner + column] = narrow<Out>(static_cast<Wide<Out>>(sums[thread] * factor));
    __syncthreads();  // until the first ones have read their sums
  }
}

// Columns of a block: a warp's, or fewer (but no less than the 32 bytes that memory gives at a time) while the matrices are too few columns
// for the multiprocessors.
int width_of(i64 outer, i64 inner, i64 element_bytes) {
  constexpr i64 kManyBlocks = 128;
  int width = static_cast<int>(std::bit_ceil(static_cast<u64>(std::min<i64>(inner, kWarp))));
  while (width * element_bytes > 32 && outer * ceil_div(inner, width) < kManyBlocks) width /= 2;
  return width;
}

template <Binary kOp>
struct Arithmetic {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (kOp == Binary::add) return a + b;
    if constexpr (kOp == Binary::sub) return a - b;
    if constexpr (kOp == Binary::mul) return a * b;
    if constexpr (kOp == Binary::div) return a / b;
  }
};

template <Binary kOp>
void binary_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  const Shape& shape = out.shape();
  const auto axes = merged_axes(shape, {strides_of(out), broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape)});
  for_dtype("binary", out.dtype(),
            [&]<class T>(T) { map_views_on_gpu("binary", axes, Arithmetic<kOp>(), out.data<T>(), a.data<T>(), b.data<T>()); });
}

}  // namespace

void sum_axis(const Tensor& from, i64 outer, i64 n, i64 inner, double factor, const Tensor& to) {
  for_dtypes("sum", from.dtype(), to.dtype(), [&]<class T, class Out>(T, Out) {
    const T* x = from.data<T>();
    Out* y = to.data<Out>();
    if (inner == 1) {
      constexpr int kCount = 16 / sizeof(T);
      const bool aligned = is_aligned(x, 16) && (outer == 1 || n % kCount == 0);
      const auto sum = [&](auto kernel, unsigned threads) {
        launch("sum", kernel, blocks_for_tasks(outer), dim3(threads), x, outer, n, factor, aligned, y);
      };
      if (n <= 1 << 10) return sum(sum_rows<kWarp, kCount, T, Out>, kWarp);
      if (n <= 1 << 14) return sum(sum_rows<256, kCount, T, Out>, 256);
      return sum(sum_rows<1024, kCount, T, Out>, 1024);
    }
    const int width = width_of(outer, inner, sizeof(T));
    const auto sum = [&](auto kernel, unsigned threads) {
      launch("sum", kernel, blocks_for_tasks(outer * ceil_div(inner, width)), dim3(threads), x, outer, n, inner, width, factor, y);
    };
    n <= 1 << 8 ? sum(sum_columns<256, T, Out>, 256) : sum(sum_columns<1024, T, Out>, 1024);
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  switch (op) {
    case Binary::add:
      return binary_of<Binary::add>(a, b, out);
    case Binary::sub:
      return binary_of<Binary::sub>(a, b, out);
    case Binary::mul:
      return binary_of<Binary::mul>(a, b, out);
    case Binary::div:
      return binary_of<Binary::div>(a, b, out);
  }
}

void broadcast(const Tensor& x, const Tensor& out) {
  const auto axes = merged_axes(out.shape(), {strides_of(out), broadcast_strides(x.shape(), out.shape())});
  for_dtype("broadcast", out.dtype(), [&]<class T>(T) { map_views_on_gpu("broadcast", axes, Same(), out.data<T>(), x.data<T>()); });
}

}  // namespace spillway::kernels::cuda
