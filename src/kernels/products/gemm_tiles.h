// Products of bf16 with the processor's tile unit (AMX, on Intel processors from Sapphire Rapids on), about ten times as fast as its
// vectors. The unit flushes denormals to zero and rounds the sum of a pair in its own way. Only gemm_cpu.cc and gemm_few_rows_cpu.cc use
// this header, on processors known to have AVX-512. Allocates nothing; thread-safe. Layouts: A is packed in panels of 16 rows, to[i / 16][p
// / 32][i % 16][p % 32]. B is packed as gemm_cpu.cc packs pairs, in panels of 48 columns, to[j / 48][p / 2][j % 48][p % 2]. A and B are
// filled with zeros to a multiple of 32 in k (packed_depth).
#pragma once
#include "kernels/products/gemm_lines.h"

namespace spillway::kernels::gemm::tiles {

inline constexpr i64 kRows = 16, kColumns = 48;
/// The number of inner indices k in one tile.
inline constexpr i64 kStep = 32;
/// The numbers of the tile registers that products with few rows use for the sums, for A and for B.
inline constexpr int kFewSums = 0, kFewA = 2, kFewB = 3;

/// Returns whether the processor has a tile unit and the operating system lets this process use it. The operating system is asked only
/// once.
bool available();

void pack_a(Operand<BFloat16> from, i64 outer, i64 k, BFloat16* to);

/// Configures the calling thread's tile unit for the lifetime of this object. The default constructor is for sums(). The other
/// constructor is for products with m rows of A, at most 16, in the layouts of gemm_few_rows_cpu.cc. Its tiles are 16 x 64 bytes, except
/// the tiles of the sums and of A: with Few::rows these tiles have only m rows, with Few::columns their rows have only 4 m bytes.
struct Scope {
  Scope();
  enum class Few { rows, columns };
  Scope(Few few, i64 m);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// Computes to[kRows * panels][kColumns] = A B over k, for one panel of B and one or two panels
/// of A, which are `a_panel_elems` apart. lines.ask() is called once for every kStep of k.
void sums(int panels, i64 k, const BFloat16* a, i64 a_panel_elems, const BFloat16* b, float* to, Lines& lines);

}  // namespace spillway::kernels::gemm::tiles
