// Products with few rows of A, as in generation, one token at a time: what counts is how fast B comes from memory, so it is read where it
// lies, once, and nothing of it is packed. Lanes are columns of B; where its k is contiguous, blocks are transposed in registers. Elements
// have the bits that gemm.h's panels give. No allocation, thread-safe. Used by matmul_cpu.cc and attention_cpu.cc.
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm {

/// The most rows of A, and the fewest columns of B.
inline constexpr i64 kFewRows = 4, kFewRowsColumns = 32;

/// Whether there are such products of B of T multiplied as P: bf16 and f32 as they are, and bf16 widened to f32.
template <class T, class P>
inline constexpr bool kHasFewRows = (std::is_same_v<P, float> || std::is_same_v<P, BFloat16>)&&(std::is_same_v<T, P> ||
                                                                                                std::is_same_v<T, BFloat16>);

/// Whether m rows by B's n columns can be multiplied: B is contiguous along one of its extents.
template <class T>
bool takes_few_rows(i64 m, i64 n, const Operand<T>& b) {
  return m <= kFewRows && n >= kFewRowsColumns && (b.k_stride == 1 || b.outer_stride == 1);
}

/// 32-bit words that hold A[m, k] as P: one of f32, or a pair of bf16; of an even k.
template <class P>
constexpr i64 few_rows_words(i64 m, i64 k) {
  return m * round_up(k, 2) * static_cast<i64>(sizeof(P)) / 4;
}

/// A[m, k] as words: k after k (or pair), in each row after row. Zero beyond the last k.
template <class T, class P>
void pack_words(Operand<T> a, i64 m, i64 k, u32* to);

/// C[m, n] = (added +) A[m, k] B[k, n] (+ bias) where takes_few_rows.
template <class P, class T, class Out>
struct FewRows {
  i64 m, n, k;
  i64 depth;     // k of one chain of additions, even: kDepth<P> for the invariant's sake
  const u32* a;  // by pack_words
  Operand<T> b;
  Output<P, Out> c;
};

/// Columns [begin, end) of C.
template <class P, class T, class Out>
void multiply_few_rows(const FewRows<P, T, Out>& product, i64 begin, i64 end);

}  // namespace spillway::kernels::gemm
