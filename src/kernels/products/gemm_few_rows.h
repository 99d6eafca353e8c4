// Products whose A has few rows, as when tokens are generated one at a time. Their speed is limited by reading B from memory, so B is read
// once, in place, without packing. The lanes of a vector are columns of B. If the k of a column are contiguous in memory, small blocks of B
// are transposed in registers. Results are bitwise those that the packed panels of gemm.h give. These functions allocate nothing and are
// thread-safe. matmul_cpu.cc and attention_cpu.cc call them.
#pragma once
#include "kernels/products/gemm.h"

namespace spillway::kernels::gemm {

/// The limits of products with few rows: at most kFewRows rows of A, and at least kFewRowsColumns columns of B.
inline constexpr i64 kFewRows = 4, kFewRowsColumns = 32;

/// True if products with few rows can multiply a B of type T in type P. f32
/// and bf16 are multiplied as they are; bf16 can also be widened to f32.
template <class T, class P>
inline constexpr bool kHasFewRows = (std::is_same_v<P, float> || std::is_same_v<P, BFloat16>)&&(std::is_same_v<T, P> ||
                                                                                                std::is_same_v<T, BFloat16>);

/// Returns whether multiply_few_rows() can compute a product of m rows of A
/// and n columns of B. B must be contiguous along k or along its columns.
template <class T>
bool takes_few_rows(i64 m, i64 n, const Operand<T>& b) {
  return m <= kFewRows && n >= kFewRowsColumns && (b.k_stride == 1 || b.outer_stride == 1);
}

/// Returns how many 32-bit words hold A[m, k] in type P. A word holds one f32 or a pair of bf16; k is rounded up to an even number.
template <class P>
constexpr i64 few_rows_words(i64 m, i64 k) {
  return m * round_up(k, 2) * static_cast<i64>(sizeof(P)) / 4;
}

/// Packs A[m, k] into words. The words of all rows for the first k (or the first pair of
/// k) come first, then those for the next k (or pair). Words beyond the last k are zero.
template <class T, class P>
void pack_words(Operand<T> a, i64 m, i64 k, u32* to);

/// A product C[m, n] = (added +) A[m, k] B[k, n] (+ bias) with few rows, for which takes_few_rows() is true.
template <class P, class T, class Out>
struct FewRows {
  i64 m, n, k;
  i64 depth;     // the number of k that are added in one chain, which must be even; with kDepth<P> results equal those of gemm.h
  const u32* a;  // the rows of A, as packed by pack_words()
  Operand<T> b;
  Output<P, Out> c;
};

/// Computes columns [begin, end) of the C of a product with few rows.
template <class P, class T, class Out>
void multiply_few_rows(const FewRows<P, T, Out>& product, i64 begin, i64 end);

}  // namespace spillway::kernels::gemm
