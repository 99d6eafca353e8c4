#include "kernels/rows/reduce.h"

#include <bit>

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kWarp = 32;

// Adds `sum` over all threads of a thread block. The first thread gets the result. Each warp sums with shuffles,
// then the first warp sums the results of the warps. The order of the additions depends on kThreads alone.
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
    __syncthreads();  // waits until all threads have read of_warp
  }
  return sum;
}

// A kernel in which a thread block sums a row of n elements. Pack p of the row goes to thread p % kThreads.
// The thread adds the kCount elements of its packs to kCount running sums, which are finally added pairwise.
// The order of additions does not depend on whether packs are aligned and can be loaded with one access.
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

// The number of rows that a thread loads before it adds them. The loads overlap, which hides the latency of
// memory. This matters for the sum of a bias gradient, which has too few thread blocks to hide the latency.
constexpr int kAhead = 8;

// Returns pack p of a row of `inner` elements. Elements beyond the end of the row are zero.
template <int kCount, class T>
__device__ Pack<T, kCount> pack_of_row(const T* row, i64 p, i64 inner, bool aligned) {
  if (aligned) return load_pack<kCount>(row + p * kCount);
  Pack<T, kCount> pack{};
  for (int i = 0; i < kCount && p * kCount + i < inner; ++i) pack.at[i] = row[p * kCount + i];
  return pack;
}

// A kernel in which a thread block sums `width` packs of columns (a power of two, at most the threads of a
// warp) of one [n, inner] matrix. Thread t adds pack t % width of the rows t / width, t / width + kThreads /
// width, and so on. The threads' sums are added pairwise within a warp, and then the warps' sums one after
// the other. The order does not depend on whether packs are aligned and can be loaded with one access.
template <int kThreads, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const T* from, i64 outer, i64 n, i64 inner, int width, double factor, bool aligned, Out* to) {
  constexpr int kCount = 16 / sizeof(T), kWarps = kThreads / kWarp;
  __shared__ double of_warp[kWarps][kWarp * kCount];
  const int thread = static_cast<int>(threadIdx.x), x = thread % width, y = thread / width, side = kThreads / width;
  const i64 packs = ceil_div(inner, kCount), tiles = ceil_div(packs, width);
  for (i64 task = blockIdx.x; task < outer * tiles; task += gridDim.x) {
    const i64 o = task / tiles, first_pack = task % tiles * width, p = first_pack + x;
    const T* const matrix = from + o * n * inner;
    double sums[kCount] = {};
    const auto add = [&](const Pack<T, kCount>& pack) {
      for (int i = 0; i < kCount; ++i) sums[i] += static_cast<double>(widen(pack.at[i]));
    };
    if (p < packs) {
      i64 row = y;
      for (; row + (kAhead - 1) * side < n; row += kAhead * side) {
        Pack<T, kCount> ahead[kAhead];
        for (int i = 0; i < kAhead; ++i) ahead[i] = pack_of_row<kCount>(matrix + (row + i * side) * inner, p, inner, aligned);
        for (int i = 0; i < kAhead; ++i) add(ahead[i]);
      }
      for (; row < n; row += side) add(pack_of_row<kCount>(matrix + row * inner, p, inner, aligned));
    }
    for (int half = kWarp / 2; half >= width; half /= 2) {
      for (int i = 0; i < kCount; ++i) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], half);
    }
    if (thread % kWarp < width) {
      for (int i = 0; i < kCount; ++i) of_warp[thread / kWarp][x * kCount + i] = sums[i];
    }
    __syncthreads();
    for (int c = thread; c < width * kCount; c += kThreads) {
      double sum = of_warp[0][c];
      for (int warp = 1; warp < kWarps; ++warp) sum += of_warp[warp][c];
      const i64 column = first_pack * kCount + c;
      if (column < inner) to[o * inner + column] = narrow<Out>(static_cast<Wide<Out>>(sum * factor));
    }
    __syncthreads();  // waits until all threads have read of_warp
  }
}

// Returns how many packs of a row a thread block sums: as many as a warp has threads, or fewer if there would be too few thread
// blocks to occupy all multiprocessors. The result is at least two packs, the 32 bytes of one memory access, if a row has as many.
int width_of(i64 outer, i64 packs) {
  constexpr i64 kManyBlocks = 128;
  int width = static_cast<int>(std::bit_ceil(static_cast<u64>(std::min<i64>(packs, kWarp))));
  while (width > 2 && outer * ceil_div(packs, width) < kManyBlocks) width /= 2;
  return width;
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
    constexpr int kCount = 16 / sizeof(T);
    const bool aligned = is_aligned(x, 16) && inner % kCount == 0;
    const i64 packs = ceil_div(inner, kCount);
    const int width = width_of(outer, packs);
    const auto sum = [&](auto kernel, unsigned threads) {
      launch("sum", kernel, blocks_for_tasks(outer * ceil_div(packs, width)), dim3(threads), x, outer, n, inner, width, factor, aligned, y);
    };
    n <= 1 << 8 ? sum(sum_columns<256, T, Out>, 256) : sum(sum_columns<512, T, Out>, 512);
  });
}

}  // namespace spillway::kernels::cuda
