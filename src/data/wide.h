// Floating-point numbers as they are stored (f32, f64, bf16, f16; little-endian) beside fp64, the type in which readers and writers of
// weights meet. Pure functions.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tensor/dtype.h"

namespace spillway::data {

/// Widens `stored`, exactly. It holds out.size() elements of `dtype`, at any address.
void widen_stored(std::span<const std::byte> stored, DType dtype, std::span<double> out);

/// Rounds to the nearest number of `dtype`, ties to even; bf16 and f16 are rounded from f32. `stored` has room for values.size() elements,
/// at any address.
void narrow_stored(std::span<const double> values, DType dtype, std::span<std::byte> stored);

/// The same of values that `read(begin, out)` gives a few thousand at once, in order, `begin` counted from the first. It takes no memory
/// from the heap: a training run may read weights while its memory is all planned.
void read_narrowed(const std::function<void(i64 begin, std::span<double> out)>& read, DType dtype, std::span<std::byte> stored);

}  // namespace spillway::data
