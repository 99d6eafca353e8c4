// Sums and maxima over the threads of a GPU that share a row: by shuffles within a warp, then over the warps of a block, as trees whose
// shape the number of threads fixes. Every thread gets the result, and all must take part. Included by *_cuda.cu alone.
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
/// A NaN is passed over where it is the second.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

/// Over groups of `threads` neighbouring lanes, a power of two; `op` must commute.
template <class T, class Op>
__device__ T fold_lanes(T x, Op op, int threads = kWarpThreads) {
  for (int mask = threads / 2; mask > 0; mask /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

/// A matrix's rows dealt to warps; blocks of kBlockThreads.
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

/// Dealt to blocks of this many threads.
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
    wait();  // until the fold before has been read
    if (rank() % kWarpThreads == 0) of_warps[rank() / kWarpThreads] = x;
    wait();
    return fold_lanes(of_warps[rank() % kWarps], op, kWarps);
  }
};

/// launch(WarpRows) or launch(BlockRows<kThreads>), `blocks` and `threads` with it: a function of the shape alone.
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
