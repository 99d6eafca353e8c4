// The single-threaded core of every CPU matrix product: packed panels and a register-tiled micro-kernel, which is compiled once per
// instruction set and chosen at run time (Goto and van de Geijn, ACM TOMS 34(3), 2008). Allocates nothing; thread-safe. matmul_cpu.cc,
// attention_cpu.cc and expert_products_cpu.cc call it. We do not use oneDNN: for f32 its 2.6 series has only the `gemm:jit` path, which
// takes its packing buffers (1-3 MB) from malloc at every call and splits K by thread count for some shapes. Invariant: an element of C is
// ((sum of chunk 0) + sum of chunk 1) + ... (+ bias), where a chunk is kDepth successive k. The sum of a chunk is one chain of
// multiply-adds in Wide<T>, from zero, over ascending k. So an element depends bitwise only on its row of A, its column of B and K, never
// on M, N, its position, strides or the number of threads. If the processor has a tile unit (AMX) or the AVX512_BF16 instructions, bf16 is
// multiplied in pairs of successive k. These units flush denormals to zero and round the sum of a pair in their own way. Other processors
// widen bf16 to f32 and add one k at a time. f16 is widened when it is packed.
#pragma once
#include <span>

#include "tensor/dtype.h"

namespace spillway::kernels::gemm {

/// The number of inner indices k in one chunk, an even number. A task keeps a strip of the operand that it packs itself in a buffer of
/// kStrip * kDepth elements: 48 KiB, for bf16 96 KiB.
template <class T>
inline constexpr i64 kDepth = sizeof(T) == 2 ? 1024 : 1024 / static_cast<i64>(sizeof(T));
/// The number of rows or columns that a task packs for itself, a multiple of the rows or columns of every kind of panel.
inline constexpr i64 kStrip = 48;

/// An operand of a product: its outer dimension is rows of A or columns of B, its inner dimension is k. Strides are in elements. Packing is
/// fast if one of the strides is 1.
template <class T>
struct Operand {
  const T* data;
  i64 outer_stride, k_stride;
  Operand from(i64 outer, i64 k) const { return {data + outer * outer_stride + k * k_stride, outer_stride, k_stride}; }
};

enum class Side { a, b };

/// The element type of panels that are packed from an operand of type T. bf16 may also
/// be packed into panels of float, which give equal sums if pairs_in_use() is `widened`.
template <class T>
using PanelOf = std::conditional_t<std::is_same_v<T, Float16>, float, T>;

/// Returns the number of k in panels of P. For bf16 the number is rounded up to whole tiles of the tile unit, and the rest is zeros.
template <class P>
constexpr i64 packed_depth(i64 k) {
  return sizeof(P) == 2 ? round_up(k, 32) : k;
}
/// Returns how many elements a packed operand takes that has `outer` rows or columns and k inner indices.
template <class P>
constexpr i64 packed_elems(i64 outer, i64 k) {
  return round_up(outer, kStrip) * packed_depth<P>(k);
}

/// The ways to multiply pairs of bf16: widen them to f32, use AVX512_BF16 vectors, or use
/// the tile unit. `best` means the last of available_pairs(). Tests can select one of them.
enum class Pairs { best, widened, vectors, tiles };
std::span<const Pairs> available_pairs();
Pairs pairs_by();
void pin_pairs_for_test(Pairs pairs);
/// Returns the way to multiply bf16 pairs that is used now. With `widened`, panels of float are faster than panels of bf16: float
/// panels are widened once, when they are packed, while bf16 panels are widened again for every panel of the other operand.
Pairs pairs_in_use();

/// Packs an operand of `outer` rows or columns and k inner indices into panels, padded with zeros. Packed strips follow each other: strip s
/// begins at packed_elems<P>(s * kStrip, k). The element type P of the panels may be T (except for f16), or float for bf16 and f16.
template <class T, class P>
void pack(Side side, Operand<T> from, i64 outer, i64 k, P* to);

/// Describes where a product is stored. Its sums are rounded to the type Out: Wide<P>, bf16 or f16.
template <class P, class Out>
struct Output {
  Out* data;
  i64 row_stride;
  const Wide<P>* added = nullptr;  // the sums of earlier chunks, or the old values of C, to which the product is added; may be `data`
  i64 added_stride = 0;
  const P* bias = nullptr;  // the bias, which is added last; one element for each of the n columns
  // Whether stores may go past the caches. That is faster for a result that is larger than the second-level cache, because its old values
  // are not read into the caches first. It has an effect on f32 sums of the tile unit without `added` and `bias`.
  bool past_caches = false;
};

/// A packed operand of which a product uses a part. It was packed with `depth` inner indices; the product begins at k = `first`, a multiple
/// of kDepth.
template <class P>
struct Packed {
  const P* data;
  i64 depth, first = 0;
};

/// The memory that the calling task will pack next. It is prefetched into the
/// second-level cache while sums are computed. Results do not depend on the prefetching.
struct Ahead {
  const char* data = nullptr;
  i64 rows = 0, row_bytes = 0, stride_bytes = 0;
};
/// Returns the memory of an operand's first `outer` rows or columns and first k inner indices. Returns nothing if neither the rows or
/// columns nor k are contiguous.
template <class T>
Ahead ahead_of(const Operand<T>& from, i64 outer, i64 k) {
  constexpr i64 kSize = sizeof(T);
  const char* data = reinterpret_cast<const char*>(from.data);
  if (from.k_stride == 1) return {data, outer, k * kSize, from.outer_stride * kSize};
  if (from.outer_stride == 1) return {data, k, outer * kSize, from.k_stride * kSize};
  return {};
}

/// Computes C[m, n] = (added +) A[m, k] B[k, n] (+ bias). k must be at most
/// kDepth; otherwise the order of sums that gemm.h promises would change.
template <class P, class Out>
void multiply(i64 m, i64 n, i64 k, Packed<P> a, Packed<P> b, Output<P, Out> c, Ahead next = {});

}  // namespace spillway::kernels::gemm
