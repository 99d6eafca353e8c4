// The lane sums behind tile_square_sum, for norm.cc alone: lanes[i mod 64] += tile[i] * tile[i] in fp64, i ascending, for whole rows of 64.
// Each lane is its own chain of additions, so paths differ in nothing but how many lanes an instruction carries. The square of an fp64
// element is rounded by itself (no fused multiply-add, see adamw_tile_paths.h).
#pragma once
#include "base/types.h"
#include "optim/norm.h"

namespace spillway::optim {

/// Right by definition.
template <class T>
void add_square_rows_scalar(const T* tile, i64 rows, double* lanes);
template <class T>
void add_square_rows_avx2(const T* tile, i64 rows, double* lanes);
template <class T>
void add_square_rows_avx512(const T* tile, i64 rows, double* lanes);

}  // namespace spillway::optim
