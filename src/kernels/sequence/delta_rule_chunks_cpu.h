// One key head of a delta rule on the CPU, with the value heads that use it: views of its tensors, and the arithmetic that the forward pass
// and the gradient share. Included only by delta_rule_cpu.cc and delta_rule_gradient_cpu.cc. T is the type of the arithmetic, S that of the
// elements. Within a chunk of n positions, with D = exp(decay[i] - decay[j]) for j <= i, the values u[n, V] that are added to the state are
// the solution of (I + A) u = r, where A is the part of beta (k k^T) D below the diagonal and r = beta (v - grown (k state)).
#pragma once
#include "kernels/sequence/attention_rows.h"
#include "kernels/sequence/chunk_products_cpu.h"
#include "kernels/sequence/delta_rows.h"
#include "kernels/sequence/delta_rule_problem.h"
#include "kernels/sequence/scan_rows.h"

namespace spillway::kernels::delta {

using scan::multiply, scan::Operand, scan::packed, scan::Pieces, scan::Rows, scan::Side, scan::times, scan::weighted_sum;

// Tasks lie in at most kLanes sequences, each with a workspace of its own. Results do not depend on the number of threads.
constexpr i64 kLanes = 16;

inline i64 lanes_of(const DeltaShape& s) { return std::min(s.B * s.J, kLanes); }
inline i64 chunk_of(const DeltaShape& s) { return std::min(s.T, kScanChunk); }
inline i64 state_elems(const DeltaShape& s) { return round_up(s.K * s.V, 16); }
// The elements of a packed operand whose columns are positions, elements of a key or elements of a value, with the most inner indices.
inline i64 operand_elems(const DeltaShape& s) {
  const i64 chunk = chunk_of(s), most = std::max({chunk, s.K, s.V});
  return std::max({packed(chunk, most), packed(s.K, most), packed(s.V, most)});
}

/// Key head `key` of row b of the batch, and its value heads [first, last).
struct Item {
  i64 b, key, first, last;
};

/// The decays and factors of a chunk of one value head.
template <class T>
struct Gates {
  T soft[kScanChunk], slope[kScanChunk];  // softplus(a + dt_bias) and its derivative
  T beta[kScanChunk];
  T decay[kScanChunk];  // the sum of g from the chunk's beginning to this position inclusive
  T grown[kScanChunk];  // exp(decay): the factor of the state before the chunk
  T left[kScanChunk];   // the factor with which this position's input reaches the end of the chunk
  T total;              // the factor of the state before the chunk at its end
};

/// Holds what the value heads of a key head share of a chunk: q, times 1 / sqrt(K), and k in the type of the arithmetic, packed forms and
/// products.
template <class T>
struct Keys {
  T *q, *k;                                  // [chunk, K]
  T *q_rows, *k_rows, *k_across;             // A of products: rows are positions, positions and elements
  T *qk, *kk;                                // [chunk, chunk]
  T q_norm[kScanChunk], k_norm[kScanChunk];  // the factors that normalize
  static i64 elems(const DeltaShape& s) {
    const i64 chunk = chunk_of(s);
    return 2 * round_up(chunk * s.K, 16) + 2 * packed(chunk, s.K) + packed(s.K, chunk) + 2 * round_up(chunk * chunk, 16);
  }
  Keys(const DeltaShape& s, Pieces<T>& from) {
    const i64 chunk = chunk_of(s);
    q = from.take(chunk * s.K), k = from.take(chunk * s.K);
    q_rows = from.take(packed(chunk, s.K)), k_rows = from.take(packed(chunk, s.K)), k_across = from.take(packed(s.K, chunk));
    qk = from.take(chunk * chunk), kk = from.take(chunk * chunk);
  }
};

/// Buffers of the solution of a chunk.
template <class T>
struct Solution {
  T *to_output, *to_value;  // [chunk, chunk]: the weights (q k^T) D, whose part above the diagonal is zero, and beta (k k^T) D
  T *rows, *scaled;         // [chunk, V]
  T *left, *right;          // packed operands
  static i64 elems(const DeltaShape& s) {
    const i64 chunk = chunk_of(s);
    return 2 * round_up(chunk * chunk, 16) + 2 * round_up(chunk * s.V, 16) + 2 * operand_elems(s);
  }
  Solution(const DeltaShape& s, Pieces<T>& from) {
    const i64 chunk = chunk_of(s);
    to_output = from.take(chunk * chunk), to_value = from.take(chunk * chunk);
    rows = from.take(chunk * s.V), scaled = from.take(chunk * s.V);
    left = from.take(operand_elems(s)), right = from.take(operand_elems(s));
  }
};

template <class S>
struct Rule {
  using T = Wide<S>;
  DeltaShape shape;
  const DeltaTensors& in;
  const DeltaOptions& options;

  const i32* positions(i64 b) const { return options.positions_BT.defined() ? options.positions_BT.data<i32>() + b * shape.T : nullptr; }
  T scale() const { return T(1) / std::sqrt(static_cast<T>(shape.K)); }

  Gates<T> gates(i64 b, i64 h, const ScanChunk& chunk) const {
    Gates<T> g;
    const T bias = widen(in.dt_bias_H.data<S>()[h]), rate = -std::exp(widen(in.a_log_H.data<S>()[h]));
    const S *a = in.a_BTH.data<S>() + b * in.a_BTH.stride(0) + h, *raw = in.b_BTH.data<S>() + b * in.b_BTH.stride(0) + h;
    T sum = 0;
    for (i64 t = 0; t < chunk.rows; ++t) {
      const auto step = time_step<T>(widen(a[(chunk.begin + t) * in.a_BTH.stride(1)]) + bias, T(0), std::numeric_limits<T>::infinity());
      g.soft[t] = step.dt, g.slope[t] = step.slope;
      g.beta[t] = 1 / (1 + std::exp(-widen(raw[(chunk.begin + t) * in.b_BTH.stride(1)])));
      sum += rate * step.dt;
      g.decay[t] = sum, g.grown[t] = std::exp(sum);
    }
    for (i64 t = 0; t < chunk.rows; ++t) g.left[t] = std::exp(sum - g.decay[t]);
    g.total = std::exp(sum);
    return g;
  }

  // Widens, normalizes and scales rows of a key head. Writes the factors that normalize to `norms`.
  void widen_rows(const Tensor& from, const Item& item, const ScanChunk& chunk, T factor, T* norms, T* to) const {
    const Rows<S> rows(from, item.b, item.key, shape.K);
    for (i64 t = 0; t < chunk.rows; ++t) {
      const S* row = rows.row(chunk.begin + t);
      norms[t] = options.normalize ? 1 / std::sqrt(rows::dot<S>(row, row, shape.K) + T(1e-6)) : T(1);
      times(row, shape.K, factor * norms[t], to + t * shape.K);
    }
  }

  // Fills what all value heads share.
  void share(const Item& item, const ScanChunk& chunk, T* right, Keys<T>& to) const {
    const i64 rows = chunk.rows, width = shape.K;
    widen_rows(in.q_BTX, item, chunk, scale(), to.q_norm, to.q);
    widen_rows(in.k_BTX, item, chunk, T(1), to.k_norm, to.k);
    gemm::pack(Side::a, Operand<T>{to.q, width, 1}, rows, width, to.q_rows);
    gemm::pack(Side::a, Operand<T>{to.k, width, 1}, rows, width, to.k_rows);
    gemm::pack(Side::a, Operand<T>{to.k, 1, width}, width, rows, to.k_across);
    gemm::pack(Side::b, Operand<T>{to.k, width, 1}, rows, width, right);
    multiply(rows, rows, width, to.q_rows, right, to.qk, rows);
    multiply(rows, rows, width, to.k_rows, right, to.kk, rows);
  }

  // Computes the weights of a chunk, the inverse of I + A, and u. Leaves the packed state as the right operand if the chunk continues.
  void solve(const Item& item, i64 h, const Gates<T>& g, const ScanChunk& chunk, const T* state, const Keys<T>& keys, T* inverse, T* u,
             const Solution<T>& at, T* packed_state) const {
    const i64 n = chunk.rows, width = shape.V;
    const Rows<S> v(in.v_BTY, item.b, h, width);
    for (i64 t = 0; t < n; ++t) {
      T* row = at.to_output + t * n;
      delta::weights(keys.qk + t * n, keys.kk + t * n, g.decay, t + 1, g.decay[t], g.beta[t], row, at.to_value + t * n);
      std::fill(row + t + 1, row + n, T(0));
    }
    delta::inverse_of_unit_lower(at.to_value, n, inverse);
    if (chunk.continues) {
      gemm::pack(Side::b, Operand<T>{state, 1, width}, width, shape.K, packed_state);
      multiply(n, width, shape.K, keys.k_rows, packed_state, at.rows, width);
    }
    for (i64 t = 0; t < n; ++t) {
      const S* row = v.row(chunk.begin + t);
      T* to = at.rows + t * width;
      chunk.continues ? weighted_sum(to, -g.beta[t] * g.grown[t], row, g.beta[t], width, to) : times(row, width, g.beta[t], to);
    }
    gemm::pack(Side::a, Operand<T>{inverse, n, 1}, n, n, at.left);
    gemm::pack(Side::b, Operand<T>{at.rows, 1, width}, width, n, at.right);
    multiply(n, width, n, at.left, at.right, u, width);
  }

  // Computes next = total state + k^T (left u). The state is zero if the chunk does not continue a document; `next` may be `state`.
  void advance(const Gates<T>& g, const ScanChunk& chunk, const T* state, const Keys<T>& keys, const T* u, T* next,
               const Solution<T>& at) const {
    const i64 n = chunk.rows, width = shape.V;
    for (i64 t = 0; t < n; ++t) times(u + t * width, width, g.left[t], at.scaled + t * width);
    gemm::pack(Side::b, Operand<T>{at.scaled, 1, width}, width, n, at.right);
    if (chunk.continues) times(state, shape.K * width, g.total, next);
    multiply(shape.K, width, n, keys.k_across, at.right, next, width, chunk.continues);
  }
};

/// Calls work.item(item, the task's workspace) for all key heads. Lane l computes the items l, l + lanes, and so on.
template <class T, class F>
void run_items(const DeltaShape& s, i64 lane_elems, T* memory, const F& work) {
  const i64 lanes = lanes_of(s), each = s.H / s.J;
  Stream::current().run(lanes, [&](i64 lane, int) {
    for (i64 i = lane; i < s.B * s.J; i += lanes) {
      const i64 key = i % s.J;
      work.item(Item{i / s.J, key, key * each, (key + 1) * each}, memory + lane * lane_elems);
    }
  });
}

}  // namespace spillway::kernels::delta
