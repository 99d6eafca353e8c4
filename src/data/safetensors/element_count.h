// Counts the elements of a tensor whose extents (the sizes of its axes) come from an untrusted file. Pure function.
#pragma once
#include <optional>
#include <span>

#include "base/types.h"

namespace spillway::data {

/// The upper limit on the number of elements of a tensor in a file. With this limit, the byte counts of tensors of any
/// dtype, and sums of a few such counts, fit into 64 bits with much room. They also stay within Shape's own limit.
constexpr i64 kMostElements = i64{1} << 56;

/// Returns the product of the extents. Returns nothing if an extent is negative or if the product of
/// all nonzero extents exceeds kMostElements. Zeros are left out of that product because the strides
/// of an empty tensor are products of its other extents, and the strides must not overflow either.
inline std::optional<i64> element_count(std::span<const i64> extents) {
  i64 product = 1;
  bool empty = false;
  for (const i64 extent : extents) {
    if (extent < 0) return {};
    empty |= extent == 0;
    if (extent != 0 && (__builtin_mul_overflow(product, extent, &product) || product > kMostElements)) return {};
  }
  return empty ? 0 : product;
}

}  // namespace spillway::data
