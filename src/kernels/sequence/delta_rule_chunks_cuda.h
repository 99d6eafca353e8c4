// Holds what the gated delta rule and its gradient share on a GPU. A chunk's values u, which are added to the state, are linear in the
// state S before it: with D = exp(decay[i] - decay[j]), A the part of beta (k k^T) D below the diagonal and X the inverse of I + A, u = X
// (beta v) - w S with w = X (beta grown k). So X, w and X (beta v) are computed for all chunks at once; then one thread block for each head
// and kColumns columns of its state goes through the chunks in order and completes u and the states; everything else is computed chunk by
// chunk in any order. States are numbered as in document_chunks.h; one more is the state after the last position. Included only by
// delta_rule_cuda.cu and delta_rule_gradient_cuda.cu.
#pragma once
#include "kernels/dispatch.h"
#include "kernels/sequence/chunks_cuda.h"
#include "kernels/sequence/delta_rule_problem.h"

namespace spillway::kernels::cuda::delta {

using scan::for_chunks, scan::kChunk, scan::View;

constexpr int kColumns = 32;  // the columns of a state that one thread block computes
constexpr int kSquare = kChunk * kChunk;

template <class S>
struct Problem {
  using T = Wide<S>;
  View<const S> q, k, v, a, b;
  const S *a_log, *dt_bias;
  const i32* positions;  // null if each row is one document
  DeltaShape shape;
  bool normalize, given, wanted;  // whether q and k are normalized, and whether there are initial and final states
  T scale;

  Problem(const DeltaTensors& in, const DeltaOptions& o, bool has_initial, bool has_final)
      : q(in.q_BTX),
        k(in.k_BTX),
        v(in.v_BTY),
        a(in.a_BTH),
        b(in.b_BTH),
        a_log(in.a_log_H.data<S>()),
        dt_bias(in.dt_bias_H.data<S>()),
        positions(data_or_null<i32>(o.positions_BT)),
        shape(delta_shape(in, o)),
        normalize(o.normalize),
        given(has_initial),
        wanted(has_final),
        scale(1 / std::sqrt(static_cast<T>(shape.K))) {}
  __host__ __device__ i64 windows() const { return kept_states(shape.T, kChunk); }
  __host__ __device__ i64 state_elems() const { return shape.K * shape.V; }
  __device__ const i32* positions_of(i64 row) const { return positions ? positions + row * shape.T : nullptr; }
  __device__ i64 key_of(i64 h) const { return h / (shape.H / shape.J); }
  // The offsets of the state of a slot, and of position t in tensors [B, H, T, width].
  __device__ i64 state_at(i64 row, i64 slot, i64 h) const { return ((row * (windows() + 1) + slot) * shape.H + h) * state_elems(); }
  __device__ i64 before(const ScanChunk& c, i64 row, i64 h) const { return state_at(row, kept_state(c.begin, kChunk), h); }
  __device__ i64 after(const ScanChunk& c, i64 row, i64 h) const {
    return state_at(row, c.begin + c.rows == shape.T ? windows() : kept_state(c.begin + c.rows, kChunk), h);
  }
  __device__ i64 position_at(i64 row, i64 h, i64 t, i64 width) const { return ((row * shape.H + h) * shape.T + t) * width; }
};

// The gates of a chunk of one value head, as on the CPU, in shared memory.
template <class T>
struct Gates {
  T soft[kChunk], slope[kChunk], beta[kChunk], decay[kChunk], grown[kChunk], left[kChunk], total;
};
template <class S>
__device__ void load_gates(const Problem<S>& p, i64 row, i64 h, const ScanChunk& chunk, Gates<Wide<S>>& g) {
  using T = Wide<S>;
  const int t = static_cast<int>(threadIdx.x);
  const T rate = -std::exp(widen(p.a_log[h]));
  __syncthreads();
  if (t < chunk.rows) {
    const T raw = widen(p.a.at(row, chunk.begin + t)[h]) + widen(p.dt_bias[h]);
    const TimeStep<T> step = time_step<T>(raw, T(0), std::numeric_limits<T>::infinity());
    g.soft[t] = step.dt, g.slope[t] = step.slope;
    g.beta[t] = 1 / (1 + std::exp(-widen(p.b.at(row, chunk.begin + t)[h])));
  }
  __syncthreads();
  if (t == 0) {
    T sum = 0;
    for (int i = 0; i < chunk.rows; ++i) g.decay[i] = sum += rate * g.soft[i];
    g.total = std::exp(sum);
  }
  __syncthreads();
  if (t < chunk.rows) g.grown[t] = std::exp(g.decay[t]), g.left[t] = std::exp(g.decay[chunk.rows - 1] - g.decay[t]);
  __syncthreads();
}

// The memory of a delta rule or its gradient on a GPU. What follows `scratch` belongs to the gradient.
template <class T>
struct Memory {
  T *q_norms, *k_norms;                           // [B, T, J]: the factors that normalize q and k
  T *states, *w, *u;                              // u is first X (beta v)
  T *inverse, *dstates, *du, *dq, *dk, *scratch;  // inverse is null for the forward pass; dq and dk [B, H, T, K] are parts of value heads
  double* sums;                                   // [B, windows, H, 2]: what each window adds to the gradients of a_log and dt_bias
};
struct Sizes {
  i64 norms, states, keys, values, inverse, blocks, scratch, sums;
  bool gradient;
  Sizes(const DeltaShape& s, bool of_gradient) : gradient(of_gradient) {
    const i64 windows = kept_states(s.T, kChunk);
    norms = round_up(s.B * s.T * s.J, 64), states = round_up(s.B * (windows + 1) * s.H * s.K * s.V, 64);
    keys = round_up(s.B * s.H * s.T * s.K, 64), values = round_up(s.B * s.H * s.T * s.V, 64), inverse = s.B * s.H * s.T * kChunk;
    blocks = std::min(s.B * s.H * windows, scan::kMostBlocks);
    scratch = 4 * kSquare + kChunk * (2 * s.K + s.V), sums = 2 * s.B * windows * s.H;
  }
  i64 bytes(DType dtype) const {
    const i64 forward = 2 * norms + states + keys + values;
    const i64 more = gradient ? inverse + states + values + 2 * keys + round_up(blocks * scratch, 64) : 0;
    return (forward + more) * size_of(wide_dtype(dtype)) + (gradient ? sums * i64{sizeof(double)} : 0);
  }
  template <class T>
  Memory<T> cut(const Tensor& workspace) const {
    T* next = reinterpret_cast<T*>(workspace.raw());
    const auto take = [&](i64 elems) { return std::exchange(next, next + elems); };
    Memory<T> m{};
    m.q_norms = take(norms), m.k_norms = take(norms), m.states = take(states), m.w = take(keys), m.u = take(values);
    if (!gradient) return m;
    m.inverse = take(inverse), m.dstates = take(states), m.du = take(values), m.dq = take(keys), m.dk = take(keys);
    m.scratch = take(round_up(blocks * scratch, 64));
    m.sums = reinterpret_cast<double*>(next);
    return m;
  }
};

// A chunk of one value head: its normalized q, times the scale, and k, and v.
template <class S>
struct Head {
  using T = Wide<S>;
  const S *q_rows, *k_rows, *v_rows;
  const T *q_norms, *k_norms;
  i64 q_stride, k_stride, v_stride, norm_stride;
  T scale;
  __device__ Head(const Problem<S>& p, const Memory<T>& m, i64 row, i64 h, const ScanChunk& c)
      : q_rows(p.q.at(row, c.begin) + p.key_of(h) * p.shape.K),
        k_rows(p.k.at(row, c.begin) + p.key_of(h) * p.shape.K),
        v_rows(p.v.at(row, c.begin) + h * p.shape.V),
        q_norms(m.q_norms + (row * p.shape.T + c.begin) * p.shape.J + p.key_of(h)),
        k_norms(m.k_norms + (row * p.shape.T + c.begin) * p.shape.J + p.key_of(h)),
        q_stride(p.q.row),
        k_stride(p.k.row),
        v_stride(p.v.row),
        norm_stride(p.shape.J),
        scale(p.scale) {}
  __device__ T q(int t, int e) const { return widen(q_rows[t * q_stride + e]) * (q_norms[t * norm_stride] * scale); }
  __device__ T k(int t, int e) const { return widen(k_rows[t * k_stride + e]) * k_norms[t * norm_stride]; }
  __device__ T v(int t, int j) const { return widen(v_rows[t * v_stride + j]); }
};

// Computes the factors that normalize q and k.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) find_norms(Problem<S> p, Wide<S>* q_norms, Wide<S>* k_norms) {
  using T = Wide<S>;
  const i64 rows = p.shape.B * p.shape.T * p.shape.J;
  for (i64 i = WarpRows::first(); i < 2 * rows; i += WarpRows::step()) {
    const i64 row = i % rows, key = row % p.shape.J, t = row / p.shape.J % p.shape.T, b = row / p.shape.J / p.shape.T;
    const S* x = (i < rows ? p.q : p.k).at(b, t) + key * p.shape.K;
    T sum = 0;
    for (i64 e = WarpRows::rank(); p.normalize && e < p.shape.K; e += WarpRows::kThreads) sum = std::fma(widen(x[e]), widen(x[e]), sum);
    sum = WarpRows::fold(sum, Plus());
    if (WarpRows::rank() == 0) (i < rows ? q_norms : k_norms)[row] = p.normalize ? 1 / std::sqrt(sum + T(1e-6)) : T(1);
  }
}

// Replaces A below the unit diagonal of a, a matrix of n rows, by the part of the inverse of I + A there, row by row. `parts` holds a row
// for each of the kBlockThreads / kChunk threads that share a sum.
template <class T>
__device__ void invert(T* a, int n, T* parts) {
  constexpr int kParts = kBlockThreads / kChunk;
  const int c = static_cast<int>(threadIdx.x) % kChunk, part = static_cast<int>(threadIdx.x) / kChunk;
  for (int i = 1; i < n; ++i) {
    T sum = 0;
    for (int j = c + part; j < i; j += kParts) sum = std::fma(a[i * kChunk + j], a[j * kChunk + c], sum);
    parts[part * kChunk + c] = sum;
    __syncthreads();
    if (part == 0 && c < i) {
      for (int k = 1; k < kParts; ++k) sum += parts[k * kChunk + c];
      a[i * kChunk + c] = -sum;
    }
    __syncthreads();
  }
}

// Computes X, w and X (beta v) of each chunk. w is not needed if the state before a chunk is zero.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) solve_chunks(Problem<S> p, Memory<Wide<S>> m) {
  using T = Wide<S>;
  __shared__ Gates<T> g;
  __shared__ T x[kSquare], parts[kBlockThreads];
  const i64 row = blockIdx.z, h = blockIdx.y;
  const int keys = static_cast<int>(p.shape.K), values = static_cast<int>(p.shape.V);
  for_chunks(p, row, blockIdx.x, [&](const ScanChunk& chunk) {
    load_gates(p, row, h, chunk, g);
    const Head<S> head(p, m, row, h, chunk);
    const int n = static_cast<int>(chunk.rows);
    block_product<S>(
        n, n, keys, [&](int i, int e) { return head.k(i, e); }, [&](int e, int j) { return head.k(j, e); },
        [&](int i, int j, T value) {
          x[i * kChunk + j] = j < i ? g.beta[i] * value * std::exp(g.decay[i] - g.decay[j]) : T(i == j ? 1 : 0);
        });
    __syncthreads();
    invert(x, n, parts);
    const auto rows_of_x = [&](int i, int t) { return x[i * kChunk + t]; };
    T *w = m.w + p.position_at(row, h, chunk.begin, keys), *u = m.u + p.position_at(row, h, chunk.begin, values);
    if (chunk.continues) {
      block_product<S>(
          n, keys, n, rows_of_x, [&](int t, int e) { return g.beta[t] * g.grown[t] * head.k(t, e); },
          [&](int i, int e, T value) { w[i64{i} * keys + e] = value; });
    }
    block_product<S>(
        n, values, n, rows_of_x, [&](int t, int j) { return g.beta[t] * head.v(t, j); },
        [&](int i, int j, T value) { u[i64{i} * values + j] = value; });
    if (!m.inverse) return;
    T* kept = m.inverse + p.position_at(row, h, chunk.begin, kChunk);
    for (int i = static_cast<int>(threadIdx.x); i < n * n; i += kBlockThreads) kept[i / n * kChunk + i % n] = x[i / n * kChunk + i % n];
  });
}

// Completes u and computes the states, chunk by chunk.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) carry_states(Problem<S> p, Memory<Wide<S>> m, const Wide<S>* initial) {
  using T = Wide<S>;
  __shared__ Gates<T> g;
  const i64 row = blockIdx.z, h = blockIdx.y, width = p.shape.V, first = i64{blockIdx.x} * kColumns;
  const int keys = static_cast<int>(p.shape.K), columns = static_cast<int>(width - first < kColumns ? width - first : kColumns);
  for (i64 t = 0; t < p.shape.T;) {
    const ScanChunk chunk = scan_chunk(p.positions_of(row), t, p.shape.T, p.given, p.wanted);
    t += chunk.rows;
    if (!chunk.continues && !chunk.continued) continue;
    load_gates(p, row, h, chunk, g);
    const Head<S> head(p, m, row, h, chunk);
    const int n = static_cast<int>(chunk.rows);
    const T* w = m.w + p.position_at(row, h, chunk.begin, keys);
    const T* state = first + (chunk.begin == 0 ? initial + (row * p.shape.H + h) * p.state_elems() : m.states + p.before(chunk, row, h));
    T* u = m.u + p.position_at(row, h, chunk.begin, width) + first;
    if (chunk.continues) {
      block_product<S>(
          n, columns, keys, [&](int i, int e) { return w[i64{i} * keys + e]; }, [&](int e, int j) { return state[e * width + j]; },
          [&](int i, int j, T value) { u[i * width + j] -= value; });
      __syncthreads();
    }
    if (!chunk.continued) continue;
    T* next = m.states + p.after(chunk, row, h) + first;
    block_product<S>(
        keys, columns, n, [&](int e, int i) { return head.k(i, e); }, [&](int i, int j) { return g.left[i] * u[i * width + j]; },
        [&](int e, int j, T value) { next[e * width + j] = chunk.continues ? std::fma(g.total, state[e * width + j], value) : value; });
  }
}

inline dim3 chunks_of(const DeltaShape& s) {
  return {static_cast<unsigned>(kept_states(s.T, kChunk)), static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)};
}
inline dim3 columns_of(const DeltaShape& s) {
  return {static_cast<unsigned>(ceil_div(s.V, i64{kColumns})), static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)};
}
inline dim3 rows_of(const DeltaShape& s) {
  return {static_cast<unsigned>(std::clamp<i64>(ceil_div(2 * s.B * s.T * s.J, WarpRows::kRowsOfBlock), 1, 1 << 16))};
}

// Computes u, the states at the beginnings of chunks and, if it is wanted, the last one.
template <class S>
void keep_states(const Problem<S>& p, const Memory<Wide<S>>& m, const Wide<S>* initial) {
  launch("delta_rule", find_norms<S>, rows_of(p.shape), dim3(kBlockThreads), p, m.q_norms, m.k_norms);
  launch("delta_rule", solve_chunks<S>, chunks_of(p.shape), dim3(kBlockThreads), p, m);
  launch("delta_rule", carry_states<S>, columns_of(p.shape), dim3(kBlockThreads), p, m, initial);
}

}  // namespace spillway::kernels::cuda::delta
