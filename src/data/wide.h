// Converts floating-point numbers between their stored forms (f32, f64, bf16, f16; little-endian) and fp64, which readers and writers of
// weights use as the common type. Pure functions.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tensor/dtype.h"

namespace spillway::data {

/// Widens `stored` to fp64, exactly. It holds out.size() elements of `dtype`, without alignment.
void widen_stored(std::span<const std::byte> stored, DType dtype, std::span<double> out);

/// Rounds `values` to the nearest number of `dtype`, ties to even. bf16 and f16 are rounded from f32. `stored` has room for values.size()
/// elements, without alignment.
void narrow_stored(std::span<const double> values, DType dtype, std::span<std::byte> stored);

/// Like narrow_stored(), for values that are read in pieces: read(begin, out) is called in order with a few thousand elements at a time,
/// and `begin` counts from 0. It allocates no heap memory, because a training run may read weights while all of its memory is planned.
void read_narrowed(const std::function<void(i64 begin, std::span<double> out)>& read, DType dtype, std::span<std::byte> stored);

}  // namespace spillway::data
