#include "kernels/sequence/selective_scan_chunks_cuda.h"

namespace spillway::kernels::cuda {
namespace scan {
namespace {

// Computes what a chunk adds to the gradient of the state before it, dstates[slot] = sum of grown c dy^T.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) add_outputs(Problem<S> p, View<const S> dy, Wide<S>* dstates, Wide<S>* totals) {
  using T = Wide<S>;
  __shared__ Steps<T> s;
  const i64 row = blockIdx.z, h = blockIdx.y;
  const int width = static_cast<int>(p.shape.P), n = static_cast<int>(p.shape.N);
  for_chunks(p, row, blockIdx.x, [&](const ScanChunk& chunk) {
    if (!chunk.continues) return;
    load_steps(p, row, h, chunk, s);
    const i64 at = p.state_at(row, kept_state(chunk.begin, kChunk), h), first = p.group_of(h) * n;
    T* state = dstates + at * p.state_elems();
    block_product<S>(
        n, width, static_cast<int>(chunk.rows), [&](int i, int t) { return widen(p.c.at(row, chunk.begin + t)[first + i]); },
        [&](int t, int j) { return s.grown[t] * widen(dy.at(row, chunk.begin + t)[h * width + j]); },
        [&](int i, int j, T value) { state[i * width + j] = value; });
    if (threadIdx.x == 0) totals[at] = s.total;
  });
}

// The gradients of x and dt, and what one thread block keeps of the head that it computes.
template <class S>
struct Gradient {
  using T = Wide<S>;
  Problem<S> p;
  View<const S> dy;
  View<S> dx, ddt;
  Memory<T> m;
};
// The memory of a thread block. Matrices over pairs of positions have rows of kChunk elements.
template <class T>
struct Scratch {
  T *scores, *dscores, *exponents, *products, *du;
  __device__ Scratch(T* at, const ScanShape& s)
      : scores(at),
        dscores(scores + kChunk * kChunk),
        exponents(dscores + kChunk * kChunk),
        products(exponents + kChunk * kChunk),
        du(products + kChunk * s.N) {}
};
// For each position of a chunk: the gradient of dt A, a sum over a row, and the terms of the gradients of the parameters.
template <class T>
struct Positions {
  T dlog[kChunk], row[kChunk];
  double a_log[kChunk], dt_bias[kChunk], d[kChunk];
};

// One head's gradients of one chunk, by the formulas of the CPU (selective_scan_gradient_cpu.cc), in parts that synchronise at their ends.
template <class S>
struct Head {
  using T = Wide<S>;
  const Gradient<S>& g;
  const ScanBlock& block;
  const ScanChunk& chunk;
  i64 h;
  const Steps<T>& s;
  Positions<T>& at;
  const Scratch<T>& to;
  T *db, *dc;               // the sums over the heads, from the chunk's first position on
  const T *state, *dstate;  // the state before the chunk and the gradient of that after it

  __device__ T x(int t, int j) const { return widen(g.p.x.at(block.b, chunk.begin + t)[h * g.p.shape.P + j]); }
  __device__ T dy(int t, int j) const { return widen(g.dy.at(block.b, chunk.begin + t)[h * g.p.shape.P + j]); }
  __device__ T b(int t, int e) const { return widen(g.p.b.at(block.b, chunk.begin + t)[block.group * g.p.shape.N + e]); }
  __device__ T c(int t, int e) const { return widen(g.p.c.at(block.b, chunk.begin + t)[block.group * g.p.shape.N + e]); }
  __device__ int rows() const { return static_cast<int>(chunk.rows); }
  __device__ int width() const { return static_cast<int>(g.p.shape.P); }
  __device__ int n() const { return static_cast<int>(g.p.shape.N); }
  __device__ T decayed(int i, int j) const { return std::exp(s.decay[i] - s.decay[j]); }

  __device__ void within_chunk() const {
    block_product<S>(
        rows(), rows(), width(), [&](int i, int e) { return dy(i, e); }, [&](int e, int j) { return x(j, e); },
        [&](int i, int j, T value) {
          const T slope = j <= i ? value * decayed(i, j) * s.dt[j] : T(0);
          to.dscores[i * kChunk + j] += slope;
          to.exponents[i * kChunk + j] = j <= i ? slope * to.scores[i * kChunk + j] : T(0);
        });
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t < rows()) {
      T sum = 0;
      for (int i = rows() - 1; i >= t; --i) to.exponents[i * kChunk + t] = sum += to.exponents[i * kChunk + t];
    }
    __syncthreads();
    if (t < rows()) {
      T sum = 0;
      for (int j = 0; j < t; ++j) sum += to.exponents[t * kChunk + j];
      at.dlog[t] = sum;
    }
    __syncthreads();
  }

  __device__ void from_state() const {
    const int states = n(), columns = width();
    block_product<S>(
        rows(), states, columns, [&](int i, int e) { return dy(i, e); }, [&](int e, int j) { return state[j * columns + e]; },
        [&](int i, int j, T value) {
          to.products[i * states + j] = value *= s.grown[i];
          dc[i * states + j] += value;
        });
    __syncthreads();
    sum_rows(rows(), states, at.row, [&](int i, int j) { return to.products[i * states + j] * c(i, j); });
    __syncthreads();
    if (const int t = static_cast<int>(threadIdx.x); t < rows()) {
      T later = 0;
      for (int i = rows() - 1; i >= t; --i) later += at.row[i];
      at.dlog[t] += later;
    }
    __syncthreads();
  }

  __device__ void to_state() const {
    const int states = n(), columns = width();
    block_product<S>(
        rows(), states, columns, [&](int i, int e) { return x(i, e); }, [&](int e, int j) { return dstate[j * columns + e]; },
        [&](int i, int j, T value) {
          to.products[i * states + j] = value *= s.left[i] * s.dt[i];
          db[i * states + j] += value;
        });
    __syncthreads();
    sum_rows(rows(), states, at.row, [&](int i, int j) { return to.products[i * states + j] * b(i, j); });
    T whole = 0;
    if (chunk.continues) {
      for (i64 e = threadIdx.x; e < g.p.state_elems(); e += kBlockThreads) whole = std::fma(state[e], dstate[e], whole);
      whole = s.total * BlockRows<kBlockThreads>::fold(whole, Plus());
    }
    __syncthreads();
    if (const int t = static_cast<int>(threadIdx.x); t < rows()) {
      T earlier = whole;
      for (int i = 0; i < t; ++i) earlier += at.row[i];
      at.dlog[t] += earlier;
    }
    __syncthreads();
  }

  // Writes the gradients of x and dt and adds to those of the parameters.
  __device__ void finish(double* sums) const {
    const int states = chunk.continued ? n() : 0, columns = width();
    const T skip = widen(g.p.d[h]), a = -std::exp(widen(g.p.a_log[h]));
    block_product<S>(
        rows(), columns, states + rows(),
        [&](int i, int e) {
          if (e < states) return s.left[i] * b(i, e);
          const int t = e - states;
          return t >= i ? to.scores[t * kChunk + i] * decayed(t, i) : T(0);
        },
        [&](int e, int j) { return e < states ? dstate[e * columns + j] : dy(e - states, j); },
        [&](int i, int j, T value) {
          to.du[i * columns + j] = value;
          g.dx.at(block.b, chunk.begin + i)[h * columns + j] = narrow<S>(std::fma(s.dt[i], value, skip * dy(i, j)));
        });
    __syncthreads();
    sum_rows(rows(), columns, at.row, [&](int i, int j) { return x(i, j) * to.du[i * columns + j]; });
    sum_rows(rows(), columns, at.d, [&](int i, int j) { return static_cast<double>(x(i, j) * dy(i, j)); });
    __syncthreads();
    if (const int t = static_cast<int>(threadIdx.x); t < rows()) {
      const T raw = s.slope[t] * std::fma(a, at.dlog[t], at.row[t]);
      g.ddt.at(block.b, chunk.begin + t)[h] = narrow<S>(raw);
      at.a_log[t] = static_cast<double>(a) * static_cast<double>(s.dt[t]) * static_cast<double>(at.dlog[t]);
      at.dt_bias[t] = static_cast<double>(raw);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int t = 0; t < rows(); ++t) sums[0] += at.a_log[t], sums[1] += at.dt_bias[t], sums[2] += at.d[t];
    }
    __syncthreads();
  }
};

// Computes the gradients of the chunks of a window and the heads of a block. Those of b and c are sums over the heads of the block.
template <class S>
__global__ void __launch_bounds__(kBlockThreads) gradients(Gradient<S> g) {
  using T = Wide<S>;
  __shared__ Steps<T> s;
  __shared__ Positions<T> at;
  const Problem<S>& p = g.p;
  const i64 n = p.shape.N, blocks = p.shape.B * scan_blocks_of_row(p.shape);
  const Scratch<T> to(g.m.scratch + blockIdx.x * (3 * kChunk * kChunk + kChunk * (n + p.shape.P)), p.shape);
  for (i64 item = blockIdx.x; item < blocks * p.windows(); item += gridDim.x) {
    const ScanBlock block = scan_block(p.shape, item % blocks);
    double* sums = g.m.sums + 3 * (block.b * p.windows() + item / blocks) * p.shape.H;
    if (threadIdx.x == 0) {
      for (i64 i = 3 * block.first; i < 3 * block.last; ++i) sums[i] = 0;
    }
    for_chunks(p, block.b, item / blocks, [&](const ScanChunk& chunk) {
      const int rows = static_cast<int>(chunk.rows);
      const i64 first = ((block.b * scan_blocks_of_row(p.shape) + block.index) * p.shape.T + chunk.begin) * n;
      T *db = g.m.db + first, *dc = g.m.dc + first;
      __syncthreads();
      for (i64 i = threadIdx.x; i < rows * n; i += kBlockThreads) db[i] = dc[i] = 0;
      for (int i = static_cast<int>(threadIdx.x); i < kChunk * kChunk; i += static_cast<int>(kBlockThreads)) to.dscores[i] = 0;
      score(p, block, chunk, to.scores);
      for (i64 h = block.first; h < block.last; ++h) {
        load_steps(p, block.b, h, chunk, s);
        const Head<S> head{g,
                           block,
                           chunk,
                           h,
                           s,
                           at,
                           to,
                           db,
                           dc,
                           g.m.states + p.state_at(block.b, kept_state(chunk.begin, kChunk), h) * p.state_elems(),
                           g.m.dstates + p.state_at(block.b, p.slot_after(chunk), h) * p.state_elems()};
        head.within_chunk();
        if (chunk.continues) head.from_state();
        if (chunk.continued) head.to_state();
        head.finish(sums + 3 * h);
      }
      const i64 of_group = block.group * n;
      block_product<S>(
          rows, static_cast<int>(n), rows, [&](int i, int j) { return to.dscores[i * kChunk + j]; },
          [&](int j, int e) { return widen(p.b.at(block.b, chunk.begin + j)[of_group + e]); },
          [&](int i, int e, T value) { dc[i * n + e] += value; });
      block_product<S>(
          rows, static_cast<int>(n), rows, [&](int j, int i) { return to.dscores[i * kChunk + j]; },
          [&](int i, int e) { return widen(p.c.at(block.b, chunk.begin + i)[of_group + e]); },
          [&](int j, int e, T value) { db[j * n + e] += value; });
    });
  }
}

// Adds the parts of the blocks of each group in order, and writes the gradient of b or c.
template <class S>
struct AddBlocks {
  const Wide<S>* partial;
  View<S> gradient;
  ScanShape shape;
  __device__ void operator()(i64 i) const {
    const i64 e = i % shape.N, group = i / shape.N % shape.G, t = i / shape.N / shape.G % shape.T, b = i / shape.N / shape.G / shape.T;
    const i64 blocks = scan_blocks_of_group(shape), each = shape.T * shape.N;
    const Wide<S>* part = partial + (b * scan_blocks_of_row(shape) + group * blocks) * each + t * shape.N + e;
    Wide<S> sum = 0;
    for (i64 k = 0; k < blocks; ++k) sum += part[k * each];
    gradient.at(b, t)[group * shape.N + e] = narrow<S>(sum);
  }
};

}  // namespace
}  // namespace scan

i64 selective_scan_gradient_workspace_bytes(const ScanShape& shape, DType dtype) { return scan::Sizes(shape, true).bytes(dtype); }

void selective_scan_gradient(const ScanTensors& in, const ScanOptions& options, const Tensor& dy, const ScanTensors& to,
                             const Tensor& workspace) {
  for_dtype("selective_scan", dy.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    const scan::Problem<S> p(in, options, false, false);
    const scan::Sizes sizes(p.shape, true);
    const scan::Memory<T> m = sizes.cut<T>(workspace);
    const scan::View<const S> gradient(dy);
    const i64 slots = p.windows() + 1;
    scan::keep_states(p, m, static_cast<const T*>(nullptr));
    for_each_on_gpu("selective_scan", p.shape.B * slots, scan::KindOf<S>{p, m.kinds, true});
    launch("selective_scan", scan::add_outputs<S>, scan::chunks_of(p.shape), dim3(kBlockThreads), p, gradient, m.dstates, m.totals);
    for_each_on_gpu("selective_scan", p.shape.B * p.shape.H * p.state_elems(),
                    scan::Carry<T>{m.dstates, m.totals, nullptr, m.kinds, slots, p.shape.H, p.state_elems(), true});
    launch("selective_scan", scan::gradients<S>, dim3(static_cast<unsigned>(sizes.blocks)), dim3(kBlockThreads),
           scan::Gradient<S>{p, gradient, scan::View<S>(to.x_BTX), scan::View<S>(to.dt_BTH), m});
    const i64 of_groups = p.shape.B * p.shape.T * p.shape.G * p.shape.N;
    for_each_on_gpu("selective_scan", of_groups, scan::AddBlocks<S>{m.db, scan::View<S>(to.b_BTY), p.shape});
    for_each_on_gpu("selective_scan", of_groups, scan::AddBlocks<S>{m.dc, scan::View<S>(to.c_BTY), p.shape});
    const scan::AddWindows<T, 3> windows{
        m.sums, {data_or_null<T>(to.a_log_H), data_or_null<T>(to.dt_bias_H), data_or_null<T>(to.d_H)}, p.shape.B * p.windows(), p.shape.H};
    for_each_on_gpu("selective_scan", 3 * p.shape.H, windows);
  });
}

}  // namespace spillway::kernels::cuda
