// Distributes the lanes of an axis (the lines of elements along it, axis.h) over a GPU. A warp computes a lane, or a thread block if the
// lane is long. Included only by kernels/*/*_cuda.cu.
#pragma once
#include "kernels/axis.h"
#include "kernels/elements_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels {

constexpr i64 kWarpLane = 1024;    // the longest lane, in elements, that one warp computes
constexpr int kLaneThreads = 256;  // the number of threads of the thread blocks that compute longer lanes

/// Calls f.lane<Rows>(axis, lane, index of the lane's first element) for every lane. All threads that share a lane make the call
/// together: a warp or a thread block, depending on Rows.
template <class Rows, class F>
__global__ void each_lane(Axis axis, F f) {
  for (i64 lane = Rows::first(); lane < axis.lanes(); lane += Rows::step()) f.template lane<Rows>(axis, lane, first_of_lane(axis, lane));
}

template <class F>
void for_lanes_on_gpu(const char* name, const Axis& axis, F f) {
  for_rows<kLaneThreads>(axis.lanes(), axis.n, kWarpLane,
                         [&]<class Rows>(Rows, dim3 blocks, dim3 threads) { launch(name, each_lane<Rows, F>, blocks, threads, axis, f); });
}

/// With fewer lanes than this, one thread for each lane would leave most of a GPU idle.
constexpr i64 kFewLanes = 2048;

/// Calls f(i) for each i < n on a GPU, each in a separate thread.
template <class F>
__global__ void each_of(i64 n, F f) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}
template <class F>
void for_each_on_gpu(const char* name, i64 n, F f) {
  if (n > 0) launch(name, each_of<F>, blocks_for(n), dim3(kBlockThreads), n, f);
}

}  // namespace spillway::kernels
