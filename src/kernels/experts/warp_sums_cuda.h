// Running sums over the lanes of a warp. Included only by kernels/experts/*_cuda.*.
#pragma once
#include "kernels/sums_cuda.h"

namespace spillway::kernels {

/// Returns the sum of x over this lane and the lanes before it. All lanes of the warp must call it.
__device__ inline i32 sum_up_to_lane(i32 x) {
  const int lane = WarpRows::rank();
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const i32 before = __shfl_sync(~0u, x, max(lane - step, 0));
    if (lane >= step) x += before;
  }
  return x;
}

}  // namespace spillway::kernels
