// Holds what the chunked recurrences of selective_scan.h and delta_rule.h share on a GPU: views of their tensors, walks over the chunks of
// a row and sums. Included only by kernels/sequence/*_cuda.{h,cu}.
#pragma once
#include "kernels/lanes_cuda.h"
#include "kernels/sequence/block_product_cuda.h"
#include "kernels/sequence/selective_scan_problem.h"

namespace spillway::kernels::cuda::scan {

constexpr int kChunk = kScanChunk;
constexpr i64 kMostBlocks = 512;  // the most thread blocks that have memory of their own

template <class S>
struct View {
  S* data;
  i64 batch, row;
  explicit View(const Tensor& t) : data(t.data<std::remove_const_t<S>>()), batch(t.stride(0)), row(t.stride(1)) {}
  __device__ S* at(i64 b, i64 t) const { return data + b * batch + t * row; }
};

// Calls f(chunk) for the chunks that begin in elements [window * kChunk, (window + 1) * kChunk) of row b of the problem p.
template <class P, class F>
__device__ void for_chunks(const P& p, i64 b, i64 window, F f) {
  const i32* positions = p.positions_of(b);
  const i64 end = (window + 1) * kChunk < p.shape.T ? (window + 1) * kChunk : p.shape.T;
  for (i64 t = next_chunk(positions, window * kChunk, end, kChunk); t < end;) {
    const ScanChunk chunk = scan_chunk(positions, t, p.shape.T, p.given, p.wanted);
    f(chunk);
    t = next_chunk(positions, t + chunk.rows, end, kChunk);
  }
}

// Sets to[i] to the sum over j < n of f(i, j), for all rows; a warp computes each sum.
template <class T, class F>
__device__ void sum_rows(int rows, int n, T* to, F f) {
  for (int i = mma::warp(); i < rows; i += static_cast<int>(blockDim.x) / 32) {
    T sum = 0;
    for (int j = mma::lane(); j < n; j += 32) sum += f(i, j);
    sum = fold_lanes(sum, Plus());
    if (mma::lane() == 0) to[i] = sum;
  }
}

// Copies the states after the last position, which have the slot slots - 1, to `last`.
template <class T>
struct CopyLast {
  const T* states;
  T* last;
  i64 slots, of_row;  // the number of states of a row of the batch and head, and the elements of one slot
  __device__ void operator()(i64 i) const { last[i] = states[((i / of_row + 1) * slots - 1) * of_row + i % of_row]; }
};

// Adds the parts of all windows [windows, heads, kCount] in order, and writes the gradients of the parameters.
template <class T, int kCount>
struct AddWindows {
  const double* sums;
  T* to[kCount];  // null if not wanted
  i64 windows, heads;
  __device__ void operator()(i64 i) const {
    const i64 which = i / heads, h = i % heads;
    if (!to[which]) return;
    double sum = 0;
    for (i64 w = 0; w < windows; ++w) sum += sums[kCount * (w * heads + h) + which];
    to[which][h] = static_cast<T>(sum);
  }
};

}  // namespace spillway::kernels::cuda::scan
