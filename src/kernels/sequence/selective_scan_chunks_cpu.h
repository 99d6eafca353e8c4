// One block of heads of a selective scan on the CPU: views of its tensors, and the arithmetic that the forward pass and the gradient share.
// Included only by selective_scan_cpu.cc and selective_scan_gradient_cpu.cc. T is the type of the arithmetic, S that of the elements.
#pragma once
#include <algorithm>

#include "kernels/sequence/chunk_products_cpu.h"
#include "kernels/sequence/scan_rows.h"
#include "kernels/sequence/selective_scan_problem.h"

namespace spillway::kernels::scan {

// Tasks lie in at most kLanes sequences, each with a workspace of its own. Results do not depend on the number of threads.
constexpr i64 kLanes = 16;

inline i64 lanes_of(const ScanShape& s) { return std::min(s.B * scan_blocks_of_row(s), kLanes); }
inline i64 chunk_of(const ScanShape& s) { return std::min(s.T, kScanChunk); }
inline i64 state_elems(const ScanShape& s) { return round_up(s.N * s.P, 16); }

/// The time steps of a chunk of one head.
template <class T>
struct Steps {
  T dt[kScanChunk], slope[kScanChunk];
  T decay[kScanChunk];  // the sum of dt A from the chunk's beginning to this position inclusive
  T grown[kScanChunk];  // exp(decay): the factor of the state before the chunk
  T left[kScanChunk];   // the factor with which this position's input reaches the end of the chunk
  T total;              // the factor of the state before the chunk at its end
};

template <class S>
struct Scan {
  using T = Wide<S>;
  ScanShape shape;
  const ScanTensors& in;
  const ScanOptions& options;

  const i32* positions(i64 b) const { return options.positions_BT.defined() ? options.positions_BT.data<i32>() + b * shape.T : nullptr; }

  Steps<T> steps(const ScanBlock& block, i64 h, const ScanChunk& chunk) const {
    Steps<T> s;
    const T bias = widen(in.dt_bias_H.data<S>()[h]), a = -std::exp(widen(in.a_log_H.data<S>()[h]));
    const S* raw = in.dt_BTH.data<S>() + block.b * in.dt_BTH.stride(0) + h;
    T sum = 0;
    for (i64 t = 0; t < chunk.rows; ++t) {
      const TimeStep<T> step = time_step<T>(widen(raw[(chunk.begin + t) * in.dt_BTH.stride(1)]) + bias, static_cast<T>(options.smallest_dt),
                                            static_cast<T>(options.largest_dt));
      s.dt[t] = step.dt, s.slope[t] = step.slope;
      sum += step.dt * a;
      s.decay[t] = sum, s.grown[t] = std::exp(sum);
    }
    for (i64 t = 0; t < chunk.rows; ++t) s.left[t] = std::exp(sum - s.decay[t]);
    s.total = std::exp(sum);
    return s;
  }

  // Computes next = total * state + sum of left * dt * b x^T, for b packed as `b_across` (N rows of A, the chunk's positions as k). The
  // state is zero if `state` is null; `next` may be `state`. `scaled` and `right` are buffers.
  void advance(const Steps<T>& s, const ScanChunk& chunk, const Rows<S>& x, const T* b_across, const T* state, T* next, T* scaled,
               T* right) const {
    for (i64 t = 0; t < chunk.rows; ++t) scan::times(x.row(chunk.begin + t), shape.P, s.left[t] * s.dt[t], scaled + t * shape.P);
    gemm::pack(Side::b, Operand<T>{scaled, 1, shape.P}, shape.P, chunk.rows, right);
    if (state) scan::times(state, shape.N * shape.P, s.total, next);
    multiply(shape.N, shape.P, chunk.rows, b_across, right, next, shape.P, state != nullptr);
  }
};

/// Calls work.item(block, the task's workspace) for all blocks of heads. Lane l computes the items l, l + lanes, and so on.
template <class T, class F>
void run_blocks(const ScanShape& shape, i64 lane_elems, T* memory, const F& work) {
  const i64 items = shape.B * scan_blocks_of_row(shape), lanes = lanes_of(shape);
  Stream::current().run(lanes, [&](i64 lane, int) {
    for (i64 item = lane; item < items; item += lanes) work.item(scan_block(shape, item), memory + lane * lane_elems);
  });
}

}  // namespace spillway::kernels::scan
