// Holds what the scan of Mamba 2 and its gradient share on a GPU. The states at the beginnings of chunks are computed first: what each
// chunk adds to its document's state, for all chunks at once, and then the sums over successive chunks. Everything else is computed chunk
// by chunk, in any order. States are numbered as in document_chunks.h; one more is the state after the last position. Included only by
// selective_scan_cuda.cu and selective_scan_gradient_cuda.cu.
#pragma once
#include "kernels/dispatch.h"
#include "kernels/sequence/chunks_cuda.h"

namespace spillway::kernels::cuda::scan {

template <class S>
struct Problem {
  using T = Wide<S>;
  View<const S> x, dt, b, c;
  const S *a_log, *dt_bias, *d;
  const i32* positions;  // null if each row is one document
  ScanShape shape;
  T smallest, largest;
  bool given, wanted;  // whether there are initial and final states

  Problem(const ScanTensors& in, const ScanOptions& o, bool has_initial, bool has_final)
      : x(in.x_BTX),
        dt(in.dt_BTH),
        b(in.b_BTY),
        c(in.c_BTY),
        a_log(in.a_log_H.data<S>()),
        dt_bias(in.dt_bias_H.data<S>()),
        d(in.d_H.data<S>()),
        positions(data_or_null<i32>(o.positions_BT)),
        shape(scan_shape(in, o)),
        smallest(static_cast<T>(o.smallest_dt)),
        largest(static_cast<T>(o.largest_dt)),
        given(has_initial),
        wanted(has_final) {}
  __host__ __device__ i64 windows() const { return kept_states(shape.T, kChunk); }
  __host__ __device__ i64 state_elems() const { return shape.N * shape.P; }
  __host__ __device__ i64 state_at(i64 b_, i64 slot, i64 h) const { return (b_ * (windows() + 1) + slot) * shape.H + h; }
  __device__ const i32* positions_of(i64 row) const { return positions ? positions + row * shape.T : nullptr; }
  __device__ i64 group_of(i64 h) const { return h / (shape.H / shape.G); }
  __device__ i64 slot_after(const ScanChunk& k) const {
    return k.begin + k.rows == shape.T ? windows() : kept_state(k.begin + k.rows, kChunk);
  }
};

// The time steps of a chunk of one head, as on the CPU, in shared memory.
template <class T>
struct Steps {
  T dt[kChunk], slope[kChunk], decay[kChunk], grown[kChunk], left[kChunk], total;
};
template <class S>
__device__ void load_steps(const Problem<S>& p, i64 b, i64 h, const ScanChunk& chunk, Steps<Wide<S>>& s) {
  using T = Wide<S>;
  const int t = static_cast<int>(threadIdx.x);
  const T a = -std::exp(widen(p.a_log[h]));
  __syncthreads();
  if (t < chunk.rows) {
    const TimeStep<T> step = time_step<T>(widen(p.dt.at(b, chunk.begin + t)[h]) + widen(p.dt_bias[h]), p.smallest, p.largest);
    s.dt[t] = step.dt, s.slope[t] = step.slope;
  }
  __syncthreads();
  if (t == 0) {
    T sum = 0;
    for (int i = 0; i < chunk.rows; ++i) s.decay[i] = sum += s.dt[i] * a;
    s.total = std::exp(sum);
  }
  __syncthreads();
  if (t < chunk.rows) s.grown[t] = std::exp(s.decay[t]), s.left[t] = std::exp(s.decay[chunk.rows - 1] - s.decay[t]);
  __syncthreads();
}

// Holds what of the states before a state, or after one, goes into it.
enum class Kind : int { none, first, next };

// Sets kinds[B, states] for the sums over chunks: `next` says that the state of the previous slot goes into this one. If `back` is true the
// sums are those of gradients, from later states into earlier ones.
template <class S>
struct KindOf {
  Problem<S> p;
  Kind* kinds;
  bool back;
  __device__ void operator()(i64 i) const {
    const i64 states = p.windows() + 1, slot = i % states, T = p.shape.T;
    const i32* positions = p.positions_of(i / states);
    kinds[i] = Kind::none;
    if (slot == states - 1) {
      if (!p.wanted) return;
      kinds[i] = scan_chunk(positions, previous_chunk(positions, T, kChunk), T, p.given, true).continues ? Kind::next : Kind::first;
      return;
    }
    const i64 end = (slot + 1) * kChunk < T ? (slot + 1) * kChunk : T;
    for (i64 t = next_chunk(positions, slot * kChunk, end, kChunk); t < end; t = next_chunk(positions, t + 1, end, kChunk)) {
      const ScanChunk chunk = scan_chunk(positions, t, T);
      if (!chunk.continues) continue;
      const bool linked = back ? chunk.continued : scan_chunk(positions, previous_chunk(positions, t, kChunk), T, p.given).continues;
      kinds[i] = linked ? Kind::next : Kind::first;
    }
  }
};

// Computes what a chunk adds to the state after it, states[slot] = sum of left dt b x^T, and the factor of the state before it.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) add_inputs(Problem<S> p, Wide<S>* states, Wide<S>* totals) {
  using T = Wide<S>;
  __shared__ Steps<T> s;
  const i64 row = blockIdx.z, h = blockIdx.y;
  const int width = static_cast<int>(p.shape.P), n = static_cast<int>(p.shape.N);
  for_chunks(p, row, blockIdx.x, [&](const ScanChunk& chunk) {
    if (!chunk.continued) return;
    load_steps(p, row, h, chunk, s);
    const i64 at = p.state_at(row, p.slot_after(chunk), h), first = p.group_of(h) * n;
    T* state = states + at * p.state_elems();
    block_product<S>(
        n, width, static_cast<int>(chunk.rows), [&](int i, int t) { return widen(p.b.at(row, chunk.begin + t)[first + i]); },
        [&](int t, int j) { return s.left[t] * s.dt[t] * widen(p.x.at(row, chunk.begin + t)[h * width + j]); },
        [&](int i, int j, T value) { state[i * width + j] = value; });
    if (threadIdx.x == 0) totals[at] = s.total;
  });
}

// Adds up the states [B, states, H, N * P] in place, in ascending or descending order; each thread has one element.
template <class T>
struct Carry {
  T* states;
  const T *totals, *initial;  // initial may be null
  const Kind* kinds;
  i64 slots, heads, elems;
  bool back;
  __device__ void operator()(i64 i) const {
    const i64 element = i % elems, h = i / elems % heads, b = i / elems / heads;
    T sum = initial ? initial[i] : T(0);
    for (i64 k = 0; k < slots; ++k) {
      const i64 slot = back ? slots - 1 - k : k, at = (b * slots + slot) * heads + h;
      const Kind kind = kinds[b * slots + slot];
      if (kind == Kind::none) continue;
      T& state = states[at * elems + element];
      sum = kind == Kind::next ? std::fma(totals[at], sum, state) : state;
      state = sum;
    }
  }
};

// Computes scores[i * kChunk + j] = c_i b_j for one chunk and group.
template <class S>
__device__ void score(const Problem<S>& p, const ScanBlock& block, const ScanChunk& chunk, Wide<S>* scores) {
  const int rows = static_cast<int>(chunk.rows), n = static_cast<int>(p.shape.N);
  const i64 first = block.group * n;
  block_product<S>(
      rows, rows, n, [&](int i, int e) { return widen(p.c.at(block.b, chunk.begin + i)[first + e]); },
      [&](int e, int j) { return widen(p.b.at(block.b, chunk.begin + j)[first + e]); },
      [&](int i, int j, Wide<S> value) { scores[i * kChunk + j] = value; });
}

// The memory of a scan or its gradient on a GPU. `dstates`, the partial sums and `sums` belong to the gradient.
template <class T>
struct Memory {
  T *states, *dstates, *totals, *scratch, *db, *dc;
  double* sums;  // [B, windows, H, 3]: what each window adds to the gradients of a_log, dt_bias and d
  Kind* kinds;
};
struct Sizes {
  i64 states, totals, blocks, scratch, partial, sums, kinds;
  Sizes(const ScanShape& s, bool gradient) {
    const i64 windows = kept_states(s.T, kChunk), slots = s.B * (windows + 1);
    states = round_up(slots * s.H * s.N * s.P, 64), totals = round_up(slots * s.H, 64);
    blocks = std::min(s.B * scan_blocks_of_row(s) * windows, kMostBlocks);
    scratch = gradient ? 3 * kChunk * kChunk + kChunk * (s.N + s.P) : kChunk * kChunk;
    partial = gradient ? round_up(s.B * scan_blocks_of_row(s) * s.T * s.N, 64) : 0;
    sums = gradient ? 3 * s.B * windows * s.H : 0, kinds = slots;
  }
  i64 elems() const { return states * (partial > 0 ? 2 : 1) + totals + round_up(blocks * scratch, 64) + 2 * partial; }
  i64 bytes(DType dtype) const { return elems() * size_of(wide_dtype(dtype)) + sums * i64{sizeof(double)} + kinds * i64{sizeof(Kind)}; }
  template <class T>
  Memory<T> cut(const Tensor& workspace) const {
    Memory<T> m{};
    m.states = reinterpret_cast<T*>(workspace.raw());
    m.dstates = m.states + (partial > 0 ? states : 0);
    m.totals = m.dstates + states;
    m.scratch = m.totals + totals;
    m.db = m.scratch + round_up(blocks * scratch, 64), m.dc = m.db + partial;
    m.sums = reinterpret_cast<double*>(m.dc + partial);
    m.kinds = reinterpret_cast<Kind*>(m.sums + sums);
    return m;
  }
};

inline dim3 chunks_of(const ScanShape& s) {
  return {static_cast<unsigned>(kept_states(s.T, kChunk)), static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)};
}

// Computes the states at the beginnings of chunks and, if it is wanted, the last one.
template <class S>
void keep_states(const Problem<S>& p, const Memory<Wide<S>>& m, const Wide<S>* initial) {
  const i64 slots = p.windows() + 1;
  for_each_on_gpu("selective_scan", p.shape.B * slots, KindOf<S>{p, m.kinds, false});
  launch("selective_scan", add_inputs<S>, chunks_of(p.shape), dim3(kBlockThreads), p, m.states, m.totals);
  for_each_on_gpu("selective_scan", p.shape.B * p.shape.H * p.state_elems(),
                  Carry<Wide<S>>{m.states, m.totals, initial, m.kinds, slots, p.shape.H, p.state_elems(), false});
}

}  // namespace spillway::kernels::cuda::scan
