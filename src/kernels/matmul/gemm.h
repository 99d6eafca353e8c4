// The single-threaded core of every CPU matrix product: packed panels and a register-tiled micro-kernel, one per instruction set, chosen at
// run time (Goto and van de Geijn, ACM TOMS 34(3), 2008). It allocates nothing and is thread-safe. Used by matmul_cpu.cc and
// attention_cpu.cc.
// We do not use oneDNN: for f32 its 2.6 series has only the `gemm:jit` path, which takes its packing buffers (1-3 MB) from malloc at every
// call and splits K by thread count for some shapes.
// Invariant: an element of C is ((sum of chunk 0) + sum of chunk 1) + ... (+ bias). Each chunk is one chain of multiply-adds over kDepth
// ascending k from zero, in Wide<T>. So its bits depend on its row of A, its column of B and K alone, never on M, N, its place, strides or
// threads.
// bf16 is multiplied in pairs of k by the processor's tile unit (AMX) or its vectors (AVX512_BF16), which flush denormals and add a pair in
// their own way; other processors widen it to f32 one k at a time. f16 is widened when it is packed.
#pragma once
#include <span>

#include "tensor/dtype.h"

namespace spillway::kernels::gemm {

/// Inner extent of one chunk of a sum, an even number. It also bounds the streamed operand's buffer: kStrip * kDepth elements = 48 KiB
/// (bf16: 96).
template <class T>
inline constexpr i64 kDepth = sizeof(T) == 2 ? 1024 : 1024 / static_cast<i64>(sizeof(T));
/// Rows or columns that one task packs for itself: a multiple of every panel's extent.
inline constexpr i64 kStrip = 48;

/// A matrix seen along its outer extent (rows of A, columns of B) and the inner extent k. Strides are in elements; if one is 1 it is fast.
template <class T>
struct Operand {
  const T* data;
  i64 outer_stride, k_stride;
  Operand from(i64 outer, i64 k) const { return {data + outer * outer_stride + k * k_stride, outer_stride, k_stride}; }
};

enum class Side { a, b };

/// The element type of panels packed from operands of type T. If pairs_in_use() widens bf16, its panels may also be float and give the same
/// sums.
template <class T>
using PanelOf = std::conditional_t<std::is_same_v<T, Float16>, float, T>;

/// Returns the extent of k in panels of P: for bf16 it is filled with zeros to whole tiles.
template <class P>
constexpr i64 packed_depth(i64 k) {
  return sizeof(P) == 2 ? round_up(k, 32) : k;
}
/// Returns the elements that `outer` rows or columns of inner extent k take when packed.
template <class P>
constexpr i64 packed_elems(i64 outer, i64 k) {
  return round_up(outer, kStrip) * packed_depth<P>(k);
}

/// The ways to multiply pairs of bf16 on processors with AVX-512; `best` means the last available one. Tests pin one, as they do Highway's
/// targets.
enum class Pairs { best, widened, vectors, tiles };
std::span<const Pairs> available_pairs();
Pairs pairs_by();
void pin_pairs_for_test(Pairs pairs);
/// Returns the way that is used now. If it is `widened`, pairs are widened again for every panel of the other side, while panels of float
/// are widened only once.
Pairs pairs_in_use();

/// Packs outer x k into panels padded with zeros. Packed strips follow each other: strip s begins at packed_elems<P>(s * kStrip, k). P is T
/// (except for f16), or float for bf16 and f16.
template <class T, class P>
void pack(Side side, Operand<T> from, i64 outer, i64 k, P* to);

/// The destination of the sums, which are rounded to Out: Wide<P>, bf16 or f16.
template <class P, class Out>
struct Output {
  Out* data;
  i64 row_stride;
  const Wide<P>* added = nullptr;  // added before the product's sums: the sums of earlier chunks, or C's old values; may be data
  i64 added_stride = 0;
  const P* bias = nullptr;  // one element for each of the n columns, added last
};

/// An operand packed with inner extent `depth`, of which the part from k = first (a multiple of kDepth) on is used.
template <class P>
struct Packed {
  const P* data;
  i64 depth, first = 0;
};

/// Memory that will be packed next. It is prefetched into the second-level cache while sums are computed; results do not depend on it.
struct Ahead {
  const char* data = nullptr;
  i64 rows = 0, row_bytes = 0, stride_bytes = 0;
};
/// Returns the memory of `outer` x k of an operand, or nothing if neither extent is contiguous.
template <class T>
Ahead ahead_of(const Operand<T>& from, i64 outer, i64 k) {
  constexpr i64 kSize = sizeof(T);
  const char* data = reinterpret_cast<const char*>(from.data);
  if (from.k_stride == 1) return {data, outer, k * kSize, from.outer_stride * kSize};
  if (from.outer_stride == 1) return {data, k, outer * kSize, from.k_stride * kSize};
  return {};
}

/// Computes C[m, n] = (added +) A[m, k] B[k, n] (+ bias). k must be at most kDepth to keep the invariant.
template <class P, class Out>
void multiply(i64 m, i64 n, i64 k, Packed<P> a, Packed<P> b, Output<P, Out> c, Ahead next = {});

}  // namespace spillway::kernels::gemm
