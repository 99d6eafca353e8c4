// Converts floating-point numbers between their stored formats (f32, f64, bf16, f16; little-endian) and fp64. Readers and writers of
// weights use fp64 as the common type. Pure functions.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tensor/dtype.h"

namespace spillway::data {

/// Widens the numbers in `stored` to fp64, exactly. `stored` holds out.size() elements of `dtype` and need not be aligned.
void widen_stored(std::span<const std::byte> stored, DType dtype, std::span<double> out);

/// Rounds `values` to the nearest number of `dtype`, ties to even. For bf16 and f16, a value is first rounded to f32 and then to `dtype`.
/// `stored` has room for values.size() elements and need not be aligned.
void narrow_stored(std::span<const double> values, DType dtype, std::span<std::byte> stored);

/// Rounds values as narrow_stored() does, for values that come in pieces: read(begin, out) is called in order
/// with a few thousand elements at a time, and `begin` counts elements from 0. No heap memory is allocated,
/// because a training run may read weights when all of its memory is already assigned by the plan.
void read_narrowed(const std::function<void(i64 begin, std::span<double> out)>& read, DType dtype, std::span<std::byte> stored);

}  // namespace spillway::data
