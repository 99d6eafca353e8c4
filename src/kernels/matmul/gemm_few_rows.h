// Products with few rows of A, as in generation one token at a time. Their speed is that of reading B from memory, so B is read in place,
// once, and not packed. Vector lanes are columns of B; if B's k is contiguous, blocks are transposed in registers. Elements have the same
// bits as with gemm.h's panels. Allocates nothing; thread-safe. Used by matmul_cpu.cc and attention_cpu.cc.
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm {

/// These products take at most kFewRows rows of A and at least kFewRowsColumns columns of B.
inline constexpr i64 kFewRows = 4, kFewRowsColumns = 32;

/// Whether a B of type T can be multiplied as P: bf16 and f32 as they are, and bf16 widened to f32.
template <class T, class P>
inline constexpr bool kHasFewRows = (std::is_same_v<P, float> || std::is_same_v<P, BFloat16>)&&(std::is_same_v<T, P> ||
                                                                                                std::is_same_v<T, BFloat16>);

/// Returns whether m rows can be multiplied by B's n columns: B must be contiguous along one of its extents.
template <class T>
bool takes_few_rows(i64 m, i64 n, const Operand<T>& b) {
  return m <= kFewRows && n >= kFewRowsColumns && (b.k_stride == 1 || b.outer_stride == 1);
}

/// Returns the number of 32-bit words that hold A[m, k] as P: a word is one f32 or a pair of bf16, and k is rounded up to even.
template <class P>
constexpr i64 few_rows_words(i64 m, i64 k) {
  return m * round_up(k, 2) * static_cast<i64>(sizeof(P)) / 4;
}

/// Packs A[m, k] into words: k after k (or pair after pair), each with the words of all rows. Words beyond the last k are zero.
template <class T, class P>
void pack_words(Operand<T> a, i64 m, i64 k, u32* to);

/// The product C[m, n] = (added +) A[m, k] B[k, n] (+ bias), for shapes where takes_few_rows() is true.
template <class P, class T, class Out>
struct FewRows {
  i64 m, n, k;
  i64 depth;     // extent of k in one chain of additions, even; kDepth<P> keeps gemm.h's invariant
  const u32* a;  // packed by pack_words()
  Operand<T> b;
  Output<P, Out> c;
};

/// Computes the columns [begin, end) of C.
template <class P, class T, class Out>
void multiply_few_rows(const FewRows<P, T, Out>& product, i64 begin, i64 end);

}  // namespace spillway::kernels::gemm
