#include "kernels/sequence/delta_rule_chunks_cuda.h"

namespace spillway::kernels::cuda {
namespace delta {
namespace {

using scan::sum_rows;

// Computes the part of du, the gradient of u, that comes from the chunk's own outputs: the transpose of (q k^T) D times do.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) begin_du(Problem<S> p, Memory<Wide<S>> m, View<const S> dout) {
  using T = Wide<S>;
  __shared__ Gates<T> g;
  __shared__ T scores[kSquare];
  const i64 row = blockIdx.z, h = blockIdx.y, width = p.shape.V;
  for_chunks(p, row, blockIdx.x, [&](const ScanChunk& chunk) {
    load_gates(p, row, h, chunk, g);
    const Head<S> head(p, m, row, h, chunk);
    const int n = static_cast<int>(chunk.rows);
    block_product<S>(
        n, n, static_cast<int>(p.shape.K), [&](int i, int e) { return head.q(i, e); }, [&](int e, int j) { return head.k(j, e); },
        [&](int i, int j, T value) { scores[i * kChunk + j] = j <= i ? value * std::exp(g.decay[i] - g.decay[j]) : T(0); });
    __syncthreads();
    T* du = m.du + p.position_at(row, h, chunk.begin, width);
    block_product<S>(
        n, static_cast<int>(width), n, [&](int t, int i) { return scores[i * kChunk + t]; },
        [&](int i, int j) { return widen(dout.at(row, chunk.begin + i)[h * width + j]); },
        [&](int t, int j, T value) { du[t * width + j] = value; });
  });
}

// Completes du and computes the gradients of the states at the beginnings of chunks, from the last chunk to the first one.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) carry_gradients(Problem<S> p, Memory<Wide<S>> m, View<const S> dout) {
  using T = Wide<S>;
  __shared__ Gates<T> g;
  const i64 row = blockIdx.z, h = blockIdx.y, width = p.shape.V, first = i64{blockIdx.x} * kColumns;
  const int keys = static_cast<int>(p.shape.K), columns = static_cast<int>(width - first < kColumns ? width - first : kColumns);
  const i32* positions = p.positions_of(row);
  for (i64 end = p.shape.T; end > 0;) {
    const ScanChunk chunk = scan_chunk(positions, previous_chunk(positions, end, kChunk), p.shape.T);
    end = chunk.begin;
    if (!chunk.continues && !chunk.continued) continue;
    load_gates(p, row, h, chunk, g);
    const Head<S> head(p, m, row, h, chunk);
    const int n = static_cast<int>(chunk.rows);
    T* du = m.du + p.position_at(row, h, chunk.begin, width) + first;
    const T* dnext = m.dstates + p.after(chunk, row, h) + first;
    if (chunk.continued) {
      block_product<S>(
          n, columns, keys, [&](int i, int e) { return g.left[i] * head.k(i, e); }, [&](int e, int j) { return dnext[e * width + j]; },
          [&](int i, int j, T value) { du[i * width + j] += value; });
      __syncthreads();
    }
    if (!chunk.continues) continue;
    const T* w = m.w + p.position_at(row, h, chunk.begin, keys);
    T* dstate = m.dstates + p.before(chunk, row, h) + first;
    block_product<S>(
        keys, columns, 2 * n, [&](int e, int i) { return i < n ? g.grown[i] * head.q(i, e) : -w[i64{i - n} * keys + e]; },
        [&](int i, int j) { return i < n ? widen(dout.at(row, chunk.begin + i)[h * width + first + j]) : du[(i - n) * width + j]; },
        [&](int e, int j, T value) { dstate[e * width + j] = chunk.continued ? std::fma(g.total, dnext[e * width + j], value) : value; });
  }
}

// The gradients of v, a and b. Those of q and k are computed from the parts of the value heads.
template <class S>
struct Gradient {
  using T = Wide<S>;
  Problem<S> p;
  View<const S> dout;
  View<S> dv, da, db;
  Memory<T> m;
};
// The memory of a thread block. Matrices over pairs of positions have rows of kChunk elements.
template <class T>
struct Scratch {
  T *exponents, *betas, *dqk, *dkk;  // the gradients of the exponents of D, the terms of that of beta, and the gradients of q k^T and k k^T
  T *from_state, *to_state;          // [chunk, K]: dr S^T and u dS^T, where S is the state before the chunk, and after it
  T* dr;                             // [chunk, V]: the gradient of r
  __device__ Scratch(T* at, const DeltaShape& s)
      : exponents(at),
        betas(exponents + kSquare),
        dqk(betas + kSquare),
        dkk(dqk + kSquare),
        from_state(dkk + kSquare),
        to_state(from_state + kChunk * s.K),
        dr(to_state + kChunk * s.K) {}
};
// For each position of a chunk: the gradients of g and beta, the terms that the states add to the gradients of the decays, a sum over a
// row, and the terms of the gradients of the parameters.
template <class T>
struct Positions {
  T dlog[kChunk], beta[kChunk], grown[kChunk], left[kChunk], row[kChunk];
  double a_log[kChunk], dt_bias[kChunk];
};

// One value head's gradients of one chunk, in parts that synchronise at their ends. With r = beta (v - grown (k S)), X r = u.
template <class S>
struct HeadGradient {
  using T = Wide<S>;
  const Gradient<S>& g;
  const ScanChunk& chunk;
  i64 row, h;
  const Gates<T>& gates;
  Positions<T>& at;
  const Scratch<T>& to;
  Head<S> head;
  const T *u, *du, *inverse, *state, *dstate;  // the state before the chunk, and the gradient of that after it
  T *dq, *dk;

  __device__ HeadGradient(const Gradient<S>& all, const ScanChunk& c, i64 row_, i64 h_, const Gates<T>& gates_, Positions<T>& at_,
                          const Scratch<T>& to_)
      : g(all),
        chunk(c),
        row(row_),
        h(h_),
        gates(gates_),
        at(at_),
        to(to_),
        head(all.p, all.m, row_, h_, c),
        u(all.m.u + all.p.position_at(row, h, c.begin, all.p.shape.V)),
        du(all.m.du + all.p.position_at(row, h, c.begin, all.p.shape.V)),
        inverse(all.m.inverse + all.p.position_at(row, h, c.begin, kChunk)),
        state(all.m.states + all.p.before(c, row, h)),
        dstate(all.m.dstates + all.p.after(c, row, h)),
        dq(all.m.dq + all.p.position_at(row, h, c.begin, all.p.shape.K)),
        dk(all.m.dk + all.p.position_at(row, h, c.begin, all.p.shape.K)) {}
  __device__ int rows() const { return static_cast<int>(chunk.rows); }
  __device__ int keys() const { return static_cast<int>(g.p.shape.K); }
  __device__ int values() const { return static_cast<int>(g.p.shape.V); }
  __device__ T dout(int t, int j) const { return widen(g.dout.at(row, chunk.begin + t)[h * g.p.shape.V + j]); }
  __device__ T decayed(int i, int j) const { return std::exp(gates.decay[i] - gates.decay[j]); }

  // Computes dr by the transposed solve, the gradient of v, and what v gives to that of beta.
  __device__ void solve() const {
    const int width = values();
    block_product<S>(
        rows(), width, rows(), [&](int t, int i) { return inverse[i * kChunk + t]; }, [&](int i, int j) { return du[i * width + j]; },
        [&](int t, int j, T value) {
          to.dr[t * width + j] = value;
          g.dv.at(row, chunk.begin + t)[h * width + j] = narrow<S>(gates.beta[t] * value);
        });
    __syncthreads();
    sum_rows(rows(), width, at.beta, [&](int i, int j) { return to.dr[i * width + j] * head.v(i, j); });
    __syncthreads();
  }

  // Computes the gradients of q k^T and k k^T, and begins those of the decays. An element (i, j) of every product belongs to one thread.
  __device__ void within_chunk() const {
    const int n = rows(), width = values();
    const auto k_across = [&](int e, int j) { return head.k(j, e); };
    const auto u_across = [&](int e, int j) { return u[j * width + e]; };
    block_product<S>(
        n, n, keys(), [&](int i, int e) { return head.q(i, e); }, k_across,
        [&](int i, int j, T value) { to.dqk[i * kChunk + j] = j <= i ? value : T(0); });
    block_product<S>(
        n, n, keys(), [&](int i, int e) { return head.k(i, e); }, k_across,
        [&](int i, int j, T value) { to.dkk[i * kChunk + j] = j < i ? value : T(0); });
    block_product<S>(
        n, n, width, [&](int i, int e) { return dout(i, e); }, u_across,
        [&](int i, int j, T value) {
          const T slope = j <= i ? value * decayed(i, j) : T(0);
          to.exponents[i * kChunk + j] = slope * to.dqk[i * kChunk + j];
          to.dqk[i * kChunk + j] = slope;
        });
    block_product<S>(
        n, n, width, [&](int i, int e) { return to.dr[i * width + e]; }, u_across,
        [&](int i, int j, T value) {
          const T slope = j < i ? -value * decayed(i, j) : T(0), of_beta = slope * to.dkk[i * kChunk + j];
          to.betas[i * kChunk + j] = of_beta;
          to.exponents[i * kChunk + j] += gates.beta[i] * of_beta;
          to.dkk[i * kChunk + j] = gates.beta[i] * slope;
        });
    __syncthreads();
    sum_rows(n, n, at.row, [&](int i, int j) { return to.betas[i * kChunk + j]; });
    const int t = static_cast<int>(threadIdx.x);
    if (t < n) {
      T sum = 0;
      for (int i = n - 1; i >= t; --i) to.exponents[i * kChunk + t] = sum += to.exponents[i * kChunk + t];
    }
    __syncthreads();
    if (t < n) {
      T sum = 0;
      for (int j = 0; j < t; ++j) sum += to.exponents[t * kChunk + j];
      at.dlog[t] = sum;
      at.beta[t] += at.row[t];
    }
    __syncthreads();
  }

  __device__ void from_state() const {
    const int n = rows(), width = values(), elems = keys();
    const auto state_across = [&](int j, int e) { return state[i64{e} * width + j]; };
    block_product<S>(
        n, elems, width, [&](int i, int j) { return dout(i, j); }, state_across,
        [&](int i, int e, T value) { dq[i * elems + e] = gates.grown[i] * value; });
    block_product<S>(
        n, elems, width, [&](int i, int j) { return to.dr[i * width + j]; }, state_across,
        [&](int i, int e, T value) { to.from_state[i * elems + e] = gates.grown[i] * value; });
    __syncthreads();
    sum_rows(n, elems, at.grown, [&](int i, int e) { return dq[i * elems + e] * head.q(i, e); });
    sum_rows(n, elems, at.row, [&](int i, int e) { return to.from_state[i * elems + e] * head.k(i, e); });
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t < n) at.beta[t] -= at.row[t], at.grown[t] = std::fma(-gates.beta[t], at.row[t], at.grown[t]);
    __syncthreads();
    if (t < n) {
      T later = 0;
      for (int i = n - 1; i >= t; --i) later += at.grown[i];
      at.dlog[t] += later;
    }
    __syncthreads();
  }

  __device__ void into_state() const {
    const int n = rows(), width = values(), elems = keys();
    block_product<S>(
        n, elems, width, [&](int i, int j) { return u[i * width + j]; }, [&](int j, int e) { return dstate[i64{e} * width + j]; },
        [&](int i, int e, T value) { to.to_state[i * elems + e] = gates.left[i] * value; });
    __syncthreads();
    sum_rows(n, elems, at.left, [&](int i, int e) { return to.to_state[i * elems + e] * head.k(i, e); });
    T whole = 0;
    if (chunk.continues) {
      for (i64 e = threadIdx.x; e < g.p.state_elems(); e += kBlockThreads) whole = std::fma(state[e], dstate[e], whole);
      whole = gates.total * BlockRows<kBlockThreads>::fold(whole, Plus());
    }
    __syncthreads();
    if (const int t = static_cast<int>(threadIdx.x); t < n) {
      T earlier = whole;
      for (int i = 0; i < t; ++i) earlier += at.left[i];
      at.dlog[t] += earlier;
    }
    __syncthreads();
  }

  // Writes this head's parts of the gradients of the normalized q and k, and the gradients of a and b. Adds to those of the parameters.
  __device__ void finish(double* sums) const {
    const int n = rows(), elems = keys();
    block_product<S>(
        n, elems, n, [&](int i, int j) { return to.dqk[i * kChunk + j]; }, [&](int j, int e) { return head.k(j, e); },
        [&](int i, int e, T value) { dq[i * elems + e] = chunk.continues ? dq[i * elems + e] + value : value; });
    block_product<S>(
        n, elems, 2 * n,
        [&](int i, int j) { return j < n ? to.dqk[j * kChunk + i] : to.dkk[i * kChunk + j - n] + to.dkk[(j - n) * kChunk + i]; },
        [&](int j, int e) { return j < n ? head.q(j, e) : head.k(j - n, e); },
        [&](int i, int e, T value) {
          if (chunk.continues) value = std::fma(-gates.beta[i], to.from_state[i * elems + e], value);
          dk[i * elems + e] = chunk.continued ? value + to.to_state[i * elems + e] : value;
        });
    const T rate = -std::exp(widen(g.p.a_log[h]));
    if (const int t = static_cast<int>(threadIdx.x); t < n) {
      const T raw = gates.slope[t] * rate * at.dlog[t], beta = gates.beta[t];
      g.da.at(row, chunk.begin + t)[h] = narrow<S>(raw);
      g.db.at(row, chunk.begin + t)[h] = narrow<S>(at.beta[t] * beta * (1 - beta));
      at.a_log[t] = static_cast<double>(rate) * static_cast<double>(gates.soft[t]) * static_cast<double>(at.dlog[t]);
      at.dt_bias[t] = static_cast<double>(raw);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int t = 0; t < n; ++t) sums[0] += at.a_log[t], sums[1] += at.dt_bias[t];
    }
    __syncthreads();
  }
};

// Computes the gradients of the chunks of a window and one value head.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) gradients(Gradient<S> g) {
  using T = Wide<S>;
  __shared__ Gates<T> gates;
  __shared__ Positions<T> at;
  const Problem<S>& p = g.p;
  const i64 heads = p.shape.B * p.shape.H;
  const Scratch<T> to(g.m.scratch + blockIdx.x * (4 * kSquare + kChunk * (2 * p.shape.K + p.shape.V)), p.shape);
  for (i64 item = blockIdx.x; item < heads * p.windows(); item += gridDim.x) {
    const i64 row = item % heads / p.shape.H, h = item % p.shape.H, window = item / heads;
    double* sums = g.m.sums + 2 * ((row * p.windows() + window) * p.shape.H + h);
    if (threadIdx.x == 0) sums[0] = sums[1] = 0;
    for_chunks(p, row, window, [&](const ScanChunk& chunk) {
      load_gates(p, row, h, chunk, gates);
      const HeadGradient<S> head(g, chunk, row, h, gates, at, to);
      head.solve();
      head.within_chunk();
      if (chunk.continues) head.from_state();
      if (chunk.continued) head.into_state();
      head.finish(sums);
    });
  }
}

// Adds the parts of the value heads of each key head in order, and writes the gradient of q or k. y = factor * x is the normalized row, if
// it is normalized; each part is the gradient of `scale` times y.
template <class S>
__global__ void __launch_bounds__(kBlockThreads)
    add_heads(DeltaShape s, View<const S> x, const Wide<S>* norms, const Wide<S>* parts, Wide<S> scale, bool normalized, View<S> to) {
  using T = Wide<S>;
  const i64 each = s.H / s.J;
  for (i64 i = WarpRows::first(); i < s.B * s.T * s.J; i += WarpRows::step()) {
    const i64 key = i % s.J, t = i / s.J % s.T, b = i / s.J / s.T;
    const T* part = parts + ((b * s.H + key * each) * s.T + t) * s.K;
    const S* from = x.at(b, t) + key * s.K;
    const auto gradient = [&](i64 e) {
      T sum = 0;
      for (i64 h = 0; h < each; ++h) sum += part[h * s.T * s.K + e];
      return scale * sum;
    };
    T along = 0;
    for (i64 e = WarpRows::rank(); normalized && e < s.K; e += WarpRows::kThreads)
      along = std::fma(widen(from[e]) * norms[i], gradient(e), along);
    along = WarpRows::fold(along, Plus());
    for (i64 e = WarpRows::rank(); e < s.K; e += WarpRows::kThreads)
      to.at(b, t)[key * s.K + e] = narrow<S>(norms[i] * std::fma(-along, widen(from[e]) * norms[i], gradient(e)));
  }
}

}  // namespace
}  // namespace delta

i64 delta_rule_gradient_workspace_bytes(const DeltaShape& shape, DType dtype) { return delta::Sizes(shape, true).bytes(dtype); }

void delta_rule_gradient(const DeltaTensors& in, const DeltaOptions& options, const Tensor& doutput, const DeltaTensors& to,
                         const Tensor& workspace) {
  for_dtype("delta_rule", doutput.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const delta::Problem<S> p(in, options, false, false);
    const DeltaShape& shape = p.shape;
    const delta::Sizes sizes(shape, true);
    const delta::Memory<T> m = sizes.cut<T>(workspace);
    const delta::View<const S> dout(doutput);
    delta::keep_states(p, m, static_cast<const T*>(nullptr));
    launch("delta_rule", delta::begin_du<S>, delta::chunks_of(shape), dim3(kBlockThreads), p, m, dout);
    launch("delta_rule", delta::carry_gradients<S>, delta::columns_of(shape), dim3(kBlockThreads), p, m, dout);
    launch("delta_rule", delta::gradients<S>, dim3(static_cast<unsigned>(sizes.blocks)), dim3(kBlockThreads),
           delta::Gradient<S>{p, dout, delta::View<S>(to.v_BTY), delta::View<S>(to.a_BTH), delta::View<S>(to.b_BTH), m});
    const auto add = [&](const delta::View<const S>& x, const T* norms, const T* parts, T scale, const Tensor& gradient) {
      launch("delta_rule", delta::add_heads<S>, delta::rows_of(shape), dim3(kBlockThreads), shape, x, norms, parts, scale, p.normalize,
             delta::View<S>(gradient));
    };
    add(p.q, m.q_norms, m.dq, p.scale, to.q_BTX);
    add(p.k, m.k_norms, m.dk, T(1), to.k_BTX);
    const scan::AddWindows<T, 2> windows{
        m.sums, {data_or_null<T>(to.a_log_H), data_or_null<T>(to.dt_bias_H)}, shape.B * p.windows(), shape.H};
    for_each_on_gpu("delta_rule", 2 * shape.H, windows);
  });
}

}  // namespace spillway::kernels::cuda
