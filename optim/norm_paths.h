// The loops behind tile_square_sum, used by norm.cc alone: lanes[i mod 64] += tile[i] * tile[i] in fp64, i ascending, for whole rows of 64
// elements. Each lane is a separate chain of additions, so the implementations differ only in how many lanes an instruction processes. The
// square of an fp64 element is rounded separately (no fused multiply-add, see adamw_tile_paths.h).
#pragma once
#include "base/types.h"
#include "optim/norm.h"

namespace spillway::optim {

/// The scalar version below is the reference for the AVX2 and AVX-512 versions.
template <class T>
void add_square_rows_scalar(const T* tile, i64 rows, double* lanes);
template <class T>
void add_square_rows_avx2(const T* tile, i64 rows, double* lanes);
template <class T>
void add_square_rows_avx512(const T* tile, i64 rows, double* lanes);

}  // namespace spillway::optim
