// Layer and RMS norm on a GPU. A warp computes rows of up to kWarpColumns columns, a thread block wider rows. A row is read from memory
// once; its second and third pass read it from the caches.
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/packs_cuda.h"
#include "kernels/rows/norm.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr i64 kWarpColumns = 1024;

// Calls f(column, left) for the packs of a row that this thread computes. `column` is the column
// of the pack's first element, and `left` is how many elements the row has from there on.
template <class Rows, class S, class F>
__device__ void for_packs(i64 columns, F f) {
  constexpr i64 kCount = kPackOf<S>;
  for (i64 c = Rows::rank() * kCount; c < columns; c += Rows::kThreads * kCount) f(c, columns - c);
}

// The arguments of the forward kernels. A null `beta` selects RMS norm.
template <class S>
struct Forward {
  const S *x, *gamma, *beta;
  S* y;
  Wide<S>* statistics;
  i64 rows, columns;
  Wide<S> eps, gain_offset;
  bool aligned;
};

template <class Rows, class S>
__device__ void norm_row(const Forward<S>& r, i64 row) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  const S* x = r.x + row * r.columns;
  S* y = r.y + row * r.columns;
  T mean = 0, squares = 0;
  if (r.beta) {
    for_packs<Rows, S>(r.columns, [&](i64 c, i64 left) {
      const auto value = load_pack<kCount>(x + c, left, r.aligned);
      for (int i = 0; i < kCount; ++i) mean += value.at[i];
    });
    mean = Rows::fold(mean, Plus()) / static_cast<T>(r.columns);
  }
  for_packs<Rows, S>(r.columns, [&](i64 c, i64 left) {
    const auto value = load_pack<kCount>(x + c, left, r.aligned, mean);
    for (int i = 0; i < kCount; ++i) squares += (value.at[i] - mean) * (value.at[i] - mean);
  });
  const T factor = T(1) / std::sqrt(Rows::fold(squares, Plus()) / static_cast<T>(r.columns) + r.eps);
  for_packs<Rows, S>(r.columns, [&](i64 c, i64 left) {
    auto value = load_pack<kCount>(x + c, left, r.aligned);
    const auto gain = load_pack<kCount>(r.gamma + c, left, r.aligned);
    for (int i = 0; i < kCount; ++i) value.at[i] = (value.at[i] - mean) * factor * (gain.at[i] + r.gain_offset);
    if (r.beta) {
      const auto bias = load_pack<kCount>(r.beta + c, left, r.aligned);
      for (int i = 0; i < kCount; ++i) value.at[i] += bias.at[i];
    }
    store_pack(value, y + c, left, r.aligned);
  });
  if (Rows::rank() == 0) r.statistics[2 * row] = mean, r.statistics[2 * row + 1] = factor;
}

template <class Rows, class S>
__global__ void norm_rows(Forward<S> r) {
  for (i64 row = Rows::first(); row < r.rows; row += Rows::step()) norm_row<Rows>(r, row);
}

template <class S>
struct Gradient {
  const S *x, *gamma, *dy, *others;
  const Wide<S>* statistics;
  S* dx;
  Wide<S>*gamma_sums, *beta_sums;  // a row of `stride` sums for each chunk of `step` rows; null if they are not computed
  i64 rows, columns, step, stride;
  bool centred, aligned;
  Wide<S> gain_offset;
};

// Computes dx of one row, with the CPU's formula: dx = factor * (g - mean(g) - h * mean(g h)),
// where h = (x - mean) * factor and g = dy * (gamma + offset). RMS norm leaves out mean(g).
template <class Rows, class S>
__device__ void gradient_row(const Gradient<S>& r, i64 row) {
  using T = Wide<S>;
  constexpr int kCount = kPackOf<S>;
  const S *x = r.x + row * r.columns, *dy = r.dy + row * r.columns;
  S* dx = r.dx + row * r.columns;
  const T mean = r.statistics[2 * row], factor = r.statistics[2 * row + 1];
  // Calls f(c, left, h, g) for the packs of this thread. In g, elements beyond the end of the row are zero.
  const auto for_terms = [&](auto f) {
    for_packs<Rows, S>(r.columns, [&](i64 c, i64 left) {
      auto h = load_pack<kCount>(x + c, left, r.aligned), g = load_pack<kCount>(dy + c, left, r.aligned);
      const auto gain = load_pack<kCount>(r.gamma + c, left, r.aligned);
      for (int i = 0; i < kCount; ++i) h.at[i] = (h.at[i] - mean) * factor, g.at[i] *= gain.at[i] + r.gain_offset;
      f(c, left, h, g);
    });
  };
  T sum_g = 0, sum_gh = 0;
  for_terms([&](i64, i64, const auto& h, const auto& g) {
    for (int i = 0; i < kCount; ++i) sum_g += g.at[i], sum_gh = std::fma(g.at[i], h.at[i], sum_gh);
  });
  const T mean_g = r.centred ? Rows::fold(sum_g, Plus()) / static_cast<T>(r.columns) : T(0);
  const T mean_gh = Rows::fold(sum_gh, Plus()) / static_cast<T>(r.columns);
  for_terms([&](i64 c, i64 left, const auto& h, auto& g) {
    for (int i = 0; i < kCount; ++i) g.at[i] = factor * std::fma(-h.at[i], mean_gh, g.at[i] - mean_g);
    if (r.others) {
      const auto other = load_pack<kCount>(r.others + row * r.columns + c, left, r.aligned);
      for (int i = 0; i < kCount; ++i) g.at[i] += other.at[i];
    }
    store_pack(g, dx + c, left, r.aligned);
  });
}

template <class Rows, class S>
__global__ void gradient_rows(Gradient<S> r) {
  for (i64 row = Rows::first(); row < r.rows; row += Rows::step()) gradient_row<Rows>(r, row);
}

// The number of lines into which chunk_sums() and add_chunks() divide the threads of a block; a
// line has kWarpThreads threads. In chunk_sums() a thread sums a pack of columns over the rows y,
// y + kLines, ... of a chunk, where y is its line. The sums of the lines are then added in order.
constexpr int kLines = 8;

template <class S>
__global__ void chunk_sums(Gradient<S> r) {
  using T = Wide<S>;
  constexpr int kEach = kPackOf<S>, kColumns = kWarpThreads * kEach;
  __shared__ T gamma_lines[kLines][kColumns], beta_lines[kLines][kColumns];
  const i64 begin = blockIdx.y * r.step, end = min(begin + r.step, r.rows);
  const int at = static_cast<int>(threadIdx.x) * kEach;
  const i64 c = i64{blockIdx.x} * kColumns + at, left = r.columns - c;
  T gamma_sum[kEach] = {}, beta_sum[kEach] = {};
  for (i64 row = begin + threadIdx.y; row < end; row += kLines) {
    const T mean = r.statistics[2 * row], factor = r.statistics[2 * row + 1];
    const auto x = load_pack<kEach>(r.x + row * r.columns + c, left, r.aligned);
    const auto dy = load_pack<kEach>(r.dy + row * r.columns + c, left, r.aligned);
    for (int i = 0; i < kEach; ++i) {
      gamma_sum[i] = std::fma(dy.at[i], (x.at[i] - mean) * factor, gamma_sum[i]);
      beta_sum[i] += dy.at[i];
    }
  }
  for (int i = 0; i < kEach; ++i) gamma_lines[threadIdx.y][at + i] = gamma_sum[i], beta_lines[threadIdx.y][at + i] = beta_sum[i];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * kWarpThreads + threadIdx.x);
  for (int i = thread; i < kColumns && i64{blockIdx.x} * kColumns + i < r.columns; i += kLines * kWarpThreads) {
    T gamma = gamma_lines[0][i], beta = beta_lines[0][i];
    for (int line = 1; line < kLines; ++line) gamma += gamma_lines[line][i], beta += beta_lines[line][i];
    const i64 to = blockIdx.y * r.stride + i64{blockIdx.x} * kColumns + i;
    if (r.gamma_sums) r.gamma_sums[to] = gamma;
    if (r.beta_sums) r.beta_sums[to] = beta;
  }
}

// The arguments of add_chunks() for one or two gradients. blockIdx.y selects the gradient.
template <class T>
struct ChunkSums {
  const T* sums[2];
  T* to[2];
  i64 chunks, columns, stride;
};

// Adds the sums of all chunks. A thread adds one column over the chunks y, y + kLines, ..., where y is its line. The sums of the lines are
// then added in order.
template <class T>
__global__ void add_chunks(ChunkSums<T> r) {
  __shared__ T lines[kLines][kWarpThreads];
  const T* const sums = r.sums[blockIdx.y];
  const i64 c = i64{blockIdx.x} * kWarpThreads + threadIdx.x;
  T sum = 0;
  for (i64 chunk = threadIdx.y; chunk < r.chunks && c < r.columns; chunk += kLines) sum += sums[chunk * r.stride + c];
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= r.columns) return;
  for (int line = 1; line < kLines; ++line) sum += lines[line][threadIdx.x];
  r.to[blockIdx.y][c] = sum;
}

}  // namespace

void norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y, const Tensor& statistics,
          double gain_offset) {
  for_dtype("norm", x.dtype(), [&]<class S>(S) {
    constexpr int kCount = kPackOf<S>;
    const i64 columns = x.size(-1), rows = x.elems() / columns;
    Forward<S> r{x.data<S>(),
                 gamma.data<S>(),
                 data_or_null<S>(beta),
                 y.data<S>(),
                 statistics.data<Wide<S>>(),
                 rows,
                 columns,
                 static_cast<Wide<S>>(eps),
                 static_cast<Wide<S>>(gain_offset),
                 false};
    r.aligned = rows_aligned<kCount>(r.x, columns) && rows_aligned<kCount>(r.gamma, columns) && rows_aligned<kCount>(r.beta, columns) &&
                rows_aligned<kCount>(r.y, columns);
    for_rows<kBlockThreads>(rows, columns, kWarpColumns,
                            [&]<class Rows>(Rows, dim3 blocks, dim3 threads) { launch("norm", norm_rows<Rows, S>, blocks, threads, r); });
  });
}

void norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& statistics, const Tensor& dy, bool centred, const Tensor& others,
                   const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta, const Tensor& workspace, double gain_offset) {
  for_dtype("norm_gradient", x.dtype(), [&]<class S>(S) {
    using T = Wide<S>;
    constexpr int kCount = kPackOf<S>;
    const i64 columns = x.size(-1), rows = x.elems() / columns, chunks = norm_chunks(rows), stride = norm_sums_stride(columns);
    T *gamma_sums = reinterpret_cast<T*>(workspace.raw()), *beta_sums = gamma_sums + chunks * stride;
    Gradient<S> r{x.data<S>(),
                  dx.defined() ? gamma.data<S>() : nullptr,
                  dy.data<S>(),
                  data_or_null<S>(others),
                  statistics.data<T>(),
                  data_or_null<S>(dx),
                  dgamma.defined() ? gamma_sums : nullptr,
                  dbeta.defined() ? beta_sums : nullptr,
                  rows,
                  columns,
                  norm_chunk_rows(rows),
                  stride,
                  centred,
                  false,
                  static_cast<T>(gain_offset)};
    if (dx.defined()) {
      r.aligned = rows_aligned<kCount>(r.x, columns) && rows_aligned<kCount>(r.gamma, columns) && rows_aligned<kCount>(r.dy, columns) &&
                  rows_aligned<kCount>(r.others, columns) && rows_aligned<kCount>(r.dx, columns);
      for_rows<kBlockThreads>(rows, columns, kWarpColumns, [&]<class Rows>(Rows, dim3 blocks, dim3 threads) {
        launch("norm_gradient", gradient_rows<Rows, S>, blocks, threads, r);
      });
    }
    if (!dgamma.defined() && !dbeta.defined()) return;
    r.aligned = rows_aligned<kCount>(r.x, columns) && rows_aligned<kCount>(r.dy, columns);
    const dim3 threads(kWarpThreads, kLines);
    const dim3 tiles(static_cast<unsigned>(ceil_div(columns, kWarpThreads * kCount)), static_cast<unsigned>(chunks));
    launch("norm_gradient", chunk_sums<S>, tiles, threads, r);
    ChunkSums<T> sums{{}, {}, chunks, columns, stride};
    unsigned wanted = 0;
    if (dgamma.defined()) sums.sums[wanted] = gamma_sums, sums.to[wanted++] = dgamma.data<T>();
    if (dbeta.defined()) sums.sums[wanted] = beta_sums, sums.to[wanted++] = dbeta.data<T>();
    launch("norm_gradient", add_chunks<T>, dim3(static_cast<unsigned>(ceil_div(columns, kWarpThreads)), wanted), threads, sums);
  });
}

}  // namespace spillway::kernels::cuda
