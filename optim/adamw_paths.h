// The three implementations behind adamw_update, for adamw.cc alone.
// Why intrinsics in functions with a target attribute, and not Highway: a caller must be able to pin one path, and the numbers are a
// promise, so the operations are written out one by one, the same in all three. What keeps them apart from a fused multiply-add:
// -ffp-contract=off (the build sets it; without it the compiler may fuse even these intrinsics), and for AVX2 a target without FMA.
// vsqrtps/pd and vdivps/pd are correctly rounded by IEEE 754; the reciprocal estimates are not used.
#pragma once
#include "base/types.h"
#include "optim/adamw.h"

namespace spillway::optim {

/// Right by definition.
template <class T>
void adamw_scalar(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s);

/// These do whole vectors and return how many elements they did; the rest, less than one vector, is left to adamw_scalar.
template <class T>
i64 adamw_avx2(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s);
template <class T>
i64 adamw_avx512(T* weight, T* m, T* v, const T* gradient, i64 n, const AdamWScalars<T>& s);

}  // namespace spillway::optim
