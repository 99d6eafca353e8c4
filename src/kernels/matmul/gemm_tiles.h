// Products of bf16 by the processor's tile unit (AMX: Intel, from Sapphire Rapids on), about ten times the rate of its vectors. For
// gemm_cpu.cc alone, where AVX-512 is known to be there; no allocation, thread-safe. Denormals are flushed; a pair is added in the unit's
// own way. Layouts: A in panels of 16 rows, to[i / 16][p / 32][i % 16][p % 32]; B in gemm_cpu.cc's pairs of 48 columns, to[j / 48][p / 2][j
// % 48][p % 2]; both filled with zeros to a multiple of 32 of k (packed_depth).
#pragma once
#include "kernels/matmul/gemm_lines.h"

namespace spillway::kernels::gemm::tiles {

inline constexpr i64 kRows = 16, kColumns = 48;
/// k of one tile.
inline constexpr i64 kStep = 32;
/// Of few rows: the tiles of sums, of A and of B.
inline constexpr int kFewSums = 0, kFewA = 2, kFewB = 3;

/// Whether the processor has the unit and the operating system lets this process use it, which is asked for once.
bool available();

void pack_a(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to);

/// The calling thread's unit, set up while this lives: for sums(); or for few rows of A, at most 16, as gemm_few_rows_cpu.cc lays out its
/// operands, all in tiles of 16 x 64 bytes but these: their rows, in tiles `sums` and `a`; or their columns, of 4 bytes a row of A.
struct Scope {
  Scope();
  enum class Few { rows, columns };
  Scope(Few few, i64 m);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// to[kRows * panels][kColumns] = A B over k, for one or two panels of A, `a_panel_elems` apart, and one of B. `lines` are asked for
/// at every kStep of k.
void sums(int panels, i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to, Lines& lines);

}  // namespace spillway::kernels::gemm::tiles
