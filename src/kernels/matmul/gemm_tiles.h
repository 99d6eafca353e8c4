// Products of bf16 with the processor's tile unit (AMX: Intel, from Sapphire Rapids on), about ten times as fast as its vectors. Used only
// by gemm_cpu.cc on processors known to have AVX-512; allocates nothing; thread-safe. The unit flushes denormals and adds a pair in its own
// way. Layouts: A in panels of 16 rows, to[i / 16][p / 32][i % 16][p % 32]; B in gemm_cpu.cc's pairs of 48 columns, to[j / 48][p / 2][j %
// 48][p % 2]. Both are filled with zeros to a multiple of 32 in k (packed_depth).
#pragma once
#include "kernels/matmul/gemm_lines.h"

namespace spillway::kernels::gemm::tiles {

inline constexpr i64 kRows = 16, kColumns = 48;
/// Extent of k in one tile.
inline constexpr i64 kStep = 32;
/// For few rows: the tile numbers of the sums, of A and of B.
inline constexpr int kFewSums = 0, kFewA = 2, kFewB = 3;

/// Returns whether the processor has the unit and the operating system lets this process use it. The system is asked once.
bool available();

void pack_a(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to);

/// Configures the calling thread's tile unit for the lifetime of this object. The default is for sums(). The other constructor is for m
/// rows of A, at most 16, in the layouts of gemm_few_rows_cpu.cc: all tiles are 16 x 64 bytes, except that those of sums and of A have only
/// m rows (`rows`), or rows of only 4 m bytes (`columns`).
struct Scope {
  Scope();
  enum class Few { rows, columns };
  Scope(Few few, i64 m);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// Computes to[kRows * panels][kColumns] = A B over k, for one or two panels of A that are `a_panel_elems` apart, and one panel of B. It
/// calls lines.ask() once for every kStep of k.
void sums(int panels, i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to, Lines& lines);

}  // namespace spillway::kernels::gemm::tiles
