// Matrix products without tensor cores, for attention on a GPU. A thread block has kSide x kSide threads. Thread (x, y) holds rows 4 y to 4
// y + 3 of a result. Its columns are groups of four adjacent ones; it holds groups x, x + kSide, and so on. Sums run over the inner index
// in ascending order with fused multiply-adds. Included only by kernels/*/*_cuda.cu.
#pragma once
#include <cmath>

#include "kernels/sequence/attention_problem_cuda.h"

namespace spillway::kernels::attention_tiles {

using attention_problem::Rows;

constexpr int kTile = 64, kSide = 16, kQuad = 4, kThreads = kSide * kSide;
// The distance between rows in shared memory, in elements. This distance keeps groups of four
// elements aligned, and elements of four successive rows in one column lie in different banks.
constexpr int kStride = kTile + kQuad;

/// The number of inner indices whose elements are in shared memory at a time, and the elements of shared memory that they take. A thread
/// block has 48 KiB.
template <class T>
constexpr int kDepth = sizeof(T) == 4 ? 32 : 8;
template <class T>
constexpr int kStagedElems = 2 * kDepth<T>* kStride;

template <class T>
using Quad = Pack<T, kQuad>;
template <class T>
__device__ Quad<T> quad(const T* at) {
  return *reinterpret_cast<const Quad<T>*>(at);
}

/// Calls f(0), f(1), f(2) and f(3) in an unrolled loop, so that arrays indexed by f stay in registers.
template <class F>
__device__ __forceinline__ void for_quad(F f) {
  f(0), f(1), f(2), f(3);
}

/// Computes sum[i][j], the scalar product of row 4 y + i of a and row 4 x + j of b over the
/// width of a head, for thread (x, y). The function begins by synchronising the thread block.
template <class S, class T = Wide<S>>
__device__ void multiply_rows(const Rows<S>& a, const Rows<S>& b, i64 width, T* staged, T (&sum)[kQuad][kQuad]) {
  constexpr int kQuads = kDepth<T> / kQuad;
  T *columns_a = staged, *columns_b = staged + kDepth<T> * kStride;
  const auto stage = [&](const Rows<S>& from, i64 begin, T* to) {
    for (int i = static_cast<int>(threadIdx.y * kSide + threadIdx.x); i < kTile * kQuads; i += kThreads) {
      const int row = i / kQuads, c = i % kQuads * kQuad;
      const auto x = load_pack<kQuad>(from.at + row * from.stride + begin + c, row < from.rows ? width - begin - c : 0, from.aligned);
      for (int j = 0; j < kQuad; ++j) to[(c + j) * kStride + row] = x.at[j];
    }
  };
  for (int i = 0; i < kQuad; ++i) {
    for (int j = 0; j < kQuad; ++j) sum[i][j] = 0;
  }
  for (i64 begin = 0; begin < width; begin += kDepth<T>) {
    __syncthreads();
    stage(a, begin, columns_a);
    stage(b, begin, columns_b);
    __syncthreads();
    for (int c = 0; c < kDepth<T>; ++c) {
      const auto x = quad(columns_a + c * kStride + threadIdx.y * kQuad), y = quad(columns_b + c * kStride + threadIdx.x * kQuad);
      for (int i = 0; i < kQuad; ++i) {
        for (int j = 0; j < kQuad; ++j) sum[i][j] = std::fma(x.at[i], y.at[j], sum[i][j]);
      }
    }
  }
}

/// The part of a result of kTile rows and kWidth columns that one thread holds.
template <class T, int kWidth>
struct Sums {
  static constexpr int kQuads = kWidth / kTile;
  T at[kQuad][kQuads][kQuad];

  __device__ void clear() {
    for_all([](T& x, int) { x = 0; });
  }
  /// Calls f(element, row) for all elements that this thread holds; `row` is 0 to 3, the index among the thread's rows.
  template <class F>
  __device__ void for_all(F f) {
    for (int i = 0; i < kQuad; ++i) {
      for (int q = 0; q < kQuads; ++q) {
        for (int j = 0; j < kQuad; ++j) f(at[i][q][j], i);
      }
    }
  }
};

/// Computes sum[row][c] += weights[row][n] * from[n][first + c], summed over the rows n of `from`. The function begins by synchronising
/// the thread block, so the weights may be written just before the call. They may be overwritten after the next synchronisation.
template <class S, int kWidth, class T = Wide<S>>
__device__ void add_weighted(const T* weights, const Rows<S>& from, i64 first, i64 width, T* staged, Sums<T, kWidth>& sum) {
  static_assert(kDepth<T> * kWidth <= kStagedElems<T>);
  constexpr int kQuads = kWidth / kQuad;
  for (int begin = 0; begin < kTile && begin < from.rows; begin += kDepth<T>) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y * kSide + threadIdx.x); i < kDepth<T> * kQuads; i += kThreads) {
      const i64 row = begin + i / kQuads, c = first + i % kQuads * kQuad;
      const auto x = load_pack<kQuad>(from.at + row * from.stride + c, row < from.rows ? width - c : 0, from.aligned);
      *reinterpret_cast<Quad<T>*>(staged + i * kQuad) = x;
    }
    __syncthreads();
    for (int n = 0; n < kDepth<T>; n += kQuad) {
      Quad<T> w[kQuad];
      for (int i = 0; i < kQuad; ++i) w[i] = quad(weights + (threadIdx.y * kQuad + i) * kStride + begin + n);
      for (int k = 0; k < kQuad; ++k) {
        for (int q = 0; q < sum.kQuads; ++q) {
          const auto x = quad(staged + (n + k) * kWidth + q * kTile + threadIdx.x * kQuad);
          for (int i = 0; i < kQuad; ++i) {
            for (int j = 0; j < kQuad; ++j) sum.at[i][q][j] = std::fma(w[i].at[k], x.at[j], sum.at[i][q][j]);
          }
        }
      }
    }
  }
}

/// Stores the sums into a head from column `first` on. `to` is the first row of the thread block's tile, of which `rows` rows exist.
template <int kWidth, class S>
__device__ void store(const Sums<Wide<S>, kWidth>& sum, S* to, i64 stride, i64 rows, i64 first, i64 width, bool aligned) {
  for (int i = 0; i < kQuad; ++i) {
    const i64 row = threadIdx.y * kQuad + i;
    if (row >= rows) return;
    for (int q = 0; q < sum.kQuads; ++q) {
      const i64 c = first + q * kTile + threadIdx.x * kQuad;
      Quad<Wide<S>> x;
      for (int j = 0; j < kQuad; ++j) x.at[j] = sum.at[i][q][j];
      store_pack(x, to + row * stride + c, width - c, aligned);
    }
  }
}

/// Stores this thread's 4 x 4 weights into the tile: rows 4 y + i, columns 4 x + j.
template <class T>
__device__ void keep_weights(const T (&x)[kQuad][kQuad], T* weights) {
  for (int i = 0; i < kQuad; ++i) {
    Quad<T> row;
    for (int j = 0; j < kQuad; ++j) row.at[j] = x[i][j];
    *reinterpret_cast<Quad<T>*>(weights + (threadIdx.y * kQuad + i) * kStride + threadIdx.x * kQuad) = row;
  }
}

}  // namespace spillway::kernels::attention_tiles
