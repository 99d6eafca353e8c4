// The single-threaded heart of every matrix product: packed panels and a register-tiled micro-kernel, one per instruction set, chosen at
// run time (Goto and van de Geijn, ACM TOMS 34(3), 2008). No allocation, thread-safe. Used by matmul_cpu.cc and attention_cpu.cc. Why not
// oneDNN: for f32 its 2.6 series has the `gemm:jit` path only, which takes its packing buffers (1-3 MB) from malloc at every call and cuts
// K by thread count for some shapes; here both are ours. Invariant: an element of C is ((sum of chunk 0) + sum of chunk 1) + ... (+ bias),
// each chunk one chain of multiply-adds over kDepth ascending k from zero, in Wide<T>: its bits depend on its row of A, its column of B and
// K alone, never on M, N, its place, strides or threads. bf16 is multiplied in pairs of k by the processor's tiles (AMX) or its vectors
// (AVX512_BF16), which flush denormals and add a pair in their own way; elsewhere it is widened to f32, k by k. f16 is widened when packed.
#pragma once
#include <span>

#include "tensor/dtype.h"

namespace spillway::kernels::gemm {

/// Inner extent of one chunk of a sum; also bounds the streamed operand's buffer: kStrip * kDepth elements = 48 KiB (bf16: 96). Even.
template <class T>
inline constexpr i64 kDepth = sizeof(T) == 2 ? 1024 : 1024 / static_cast<i64>(sizeof(T));
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

/// What panels of operands of T hold; where pairs_in_use() widens them, those of bf16 may also be of float, to the same sums.
template <class T>
using PanelOf = std::conditional_t<std::is_same_v<T, Float16>, float, T>;

/// k as panels of P hold it: of bf16 filled with zeros to whole tiles.
template <class P>
constexpr i64 packed_depth(i64 k) {
  return sizeof(P) == 2 ? round_up(k, 32) : k;
}
/// Elements that `outer` rows or columns of inner extent k take when packed.
template <class P>
constexpr i64 packed_elems(i64 outer, i64 k) {
  return round_up(outer, kStrip) * packed_depth<P>(k);
}

/// What multiplies pairs of bf16 where there is AVX-512: the best is the last available. Tests pin one, like Highway's targets.
enum class Pairs { best, widened, vectors, tiles };
std::span<const Pairs> available_pairs();
Pairs pairs_by();
void pin_pairs_for_test(Pairs pairs);
/// What multiplies them now. Those that are widened are so again by every panel of the other side; panels of float are widened once.
Pairs pairs_in_use();

/// Packs outer x k in panels, padded with zeros. Packed strips follow each other: strip s begins at packed_elems<P>(s * kStrip, k).
/// P is T (not of f16), or float of bf16 and f16.
template <class T, class P>
void pack(Side side, Operand<T> from, i64 outer, i64 k, P* to);

/// Where the sums go: rounded to Out, which is Wide<P>, bf16 or f16.
template <class P, class Out>
struct Output {
  Out* data;
  i64 row_stride;
  const Wide<P>* added = nullptr;  // added to the sums first: those of earlier chunks, or what C holds; may be data
  i64 added_stride = 0;
  const P* bias = nullptr;  // of the n columns: added last
};

/// An operand packed with inner extent `depth`, to be used from its k = first (a multiple of kDepth) on.
template <class P>
struct Packed {
  const P* data;
  i64 depth, first = 0;
};

/// Memory that will be packed next: its lines are asked for into the second-level cache while sums are made. Numbers do not depend on it.
struct Ahead {
  const char* data = nullptr;
  i64 rows = 0, row_bytes = 0, stride_bytes = 0;
};
/// `outer` x k of an operand; nothing of one that is contiguous along neither extent.
template <class T>
Ahead ahead_of(const Operand<T>& from, i64 outer, i64 k) {
  constexpr i64 kSize = sizeof(T);
  const char* data = reinterpret_cast<const char*>(from.data);
  if (from.k_stride == 1) return {data, outer, k * kSize, from.outer_stride * kSize};
  if (from.outer_stride == 1) return {data, k, outer * kSize, from.k_stride * kSize};
  return {};
}

/// C[m, n] = (added +) A[m, k] B[k, n] (+ bias), k at most kDepth for the invariant's sake.
template <class P, class Out>
void multiply(i64 m, i64 n, i64 k, Packed<P> a, Packed<P> b, Output<P, Out> c, Ahead next = {});

}  // namespace spillway::kernels::gemm
