// The single-threaded heart of every matrix product: packed panels and a register-tiled micro-kernel, one per instruction set, chosen at
// run time (Goto and van de Geijn, ACM TOMS 34(3), 2008). No allocation, thread-safe. Used by matmul_cpu.cc and attention_cpu.cc. Why not
// oneDNN: for f32 its 2.6 series has the `gemm:jit` path only, which takes its packing buffers (1-3 MB) from malloc at every call and cuts
// K by thread count for some shapes; here both are ours. Invariant: an element of C is ((sum of chunk 0) + sum of chunk 1) + ... (+ bias),
// each chunk one chain of multiply-adds over kDepth ascending k from zero: its bits depend on its row of A, its column of B and K alone,
// never on M, N, its place, strides or threads.
#pragma once
#include "base/types.h"

namespace spillway::kernels::gemm {

/// Inner extent of one chunk of a sum; also bounds the streamed operand's buffer: kStrip * kDepth elements = 48 KiB.
template <class T>
inline constexpr i64 kDepth = 1024 / static_cast<i64>(sizeof(T));
/// Rows or columns that one task packs for itself: a multiple of every panel's extent.
inline constexpr i64 kStrip = 48;

/// A matrix seen along its outer extent (rows of A, columns of B) and the inner extent k; strides in elements, one of them 1 for speed.
template <class T>
struct Operand {
  const T* data;
  i64 outer_stride, k_stride;
  Operand from(i64 outer, i64 k) const { return {data + outer * outer_stride + k * k_stride, outer_stride, k_stride}; }
};

enum class Side { a, b };

/// Elements that `outer` rows or columns of inner extent k take when packed.
constexpr i64 packed_elems(i64 outer, i64 k) { return round_up(outer, kStrip) * k; }

/// Packs outer x k in panels, padded with zeros. Packed strips follow each other: strip s begins at s * kStrip * k.
template <class T>
void pack(Side side, Operand<T> from, i64 outer, i64 k, T* to);

enum class Store { replace, add };

template <class T>
struct Output {
  T* data;
  i64 row_stride;
  const T* bias = nullptr;  // of the n columns: added last
};

/// An operand packed with inner extent `depth`, to be used from its k = first on.
template <class T>
struct Packed {
  const T* data;
  i64 depth, first = 0;
};

/// C[m, n] (+)= A[m, k] B[k, n].
template <class T>
void multiply(i64 m, i64 n, i64 k, Packed<T> a, Packed<T> b, Output<T> c, Store store);

}  // namespace spillway::kernels::gemm
