// Sums and maxima over the GPU threads that share a row. They are computed by shuffles within a warp, and then
// over the warps of a thread block. Both steps form a tree whose shape depends only on the number of threads.
// All threads must take part, and every thread gets the result. Only *_cuda.* files include this header.
#pragma once
#include "device/launch_cuda.h"

namespace spillway::kernels {

constexpr int kWarpThreads = 32;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// Returns the larger operand, or a if a or b is NaN.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

/// Combines x with `op` over groups of `threads` adjacent lanes, a power of two. Every lane gets the result of its group. `op` must be
/// commutative.
template <class T, class Op>
__device__ T fold_lanes(T x, Op op, int threads = kWarpThreads) {
  for (int mask = threads / 2; mask > 0; mask /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

/// Distributes the rows of a matrix over warps. Thread blocks have kBlockThreads threads.
struct WarpRows {
  static constexpr int kThreads = kWarpThreads, kRowsOfBlock = kBlockThreads / kWarpThreads;
  __device__ static int rank() { return static_cast<int>(threadIdx.x % kWarpThreads); }
  __device__ static i64 first() { return i64{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarpThreads; }
  __device__ static i64 step() { return i64{gridDim.x} * kRowsOfBlock; }
  __device__ static void wait() { __syncwarp(); }
  template <class T, class Op>
  __device__ static T fold(T x, Op op) {
    return fold_lanes(x, op);
  }
};

/// Distributes the rows of a matrix over thread blocks of kOfBlock threads.
template <int kOfBlock>
struct BlockRows {
  static constexpr int kThreads = kOfBlock, kRowsOfBlock = 1;
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  __device__ static i64 first() { return blockIdx.x; }
  __device__ static i64 step() { return gridDim.x; }
  __device__ static void wait() { __syncthreads(); }
  template <class T, class Op>
  __device__ static T fold(T x, Op op) {
    constexpr int kWarps = kThreads / kWarpThreads;
    __shared__ T of_warps[kWarps];
    x = fold_lanes(x, op);
    wait();  // waits until all threads have read the result of the previous reduction
    if (rank() % kWarpThreads == 0) of_warps[rank() / kWarpThreads] = x;
    wait();
    return fold_lanes(of_warps[rank() % kWarps], op, kWarps);
  }
};

/// Calls launch(WarpRows, blocks, threads) if rows have at most `widest_of_warp` columns, and launch(BlockRows<kThreads>,
/// blocks, threads) for wider rows, where `blocks` is the size of the grid. The choice depends on the shape alone.
template <int kThreads, class F>
void for_rows(i64 rows, i64 columns, i64 widest_of_warp, F launch) {
  constexpr i64 kMostBlocks = 1 << 16;
  const auto blocks = [&](i64 each) { return dim3(static_cast<unsigned>(std::clamp<i64>(ceil_div(rows, each), 1, kMostBlocks))); };
  if (columns <= widest_of_warp) {
    launch(WarpRows(), blocks(WarpRows::kRowsOfBlock), dim3(kBlockThreads));
  } else {
    launch(BlockRows<kThreads>(), blocks(1), dim3(kThreads));
  }
}

}  // namespace spillway::kernels
