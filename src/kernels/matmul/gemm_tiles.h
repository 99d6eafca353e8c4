// Products of bf16 by the processor's tile unit (AMX: Intel, from Sapphire Rapids on), about ten times the rate of its vectors. For
// gemm_cpu.cc alone, where AVX-512 is known to be there; no allocation, thread-safe. Denormals are flushed; a pair is added in the unit's
// own way. Layouts: A in panels of 16 rows, to[i / 16][p / 32][i % 16][p % 32]; B in gemm_cpu.cc's pairs of 48 columns, to[j / 48][p / 2][j
// % 48][p % 2]; both filled with zeros to a multiple of 32 of k (packed_depth).
#pragma once
#include "kernels/matmul/gemm.h"

namespace spillway::kernels::gemm::tiles {

inline constexpr i64 kRows = 16, kColumns = 48;

/// Whether the processor has the unit and the operating system lets this process use it, which is asked for once.
bool available();

void pack_a(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to);

/// The calling thread's unit, set up for sums() while this lives.
struct Scope {
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// to[kRows * panels][kColumns] = A B over k, for one or two panels of A, `a_panel_elems` apart, and one of B.
void sums(int panels, i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to);

}  // namespace spillway::kernels::gemm::tiles
