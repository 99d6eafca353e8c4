// How many elements a tensor of a file has, by extents that nobody has vouched for. Pure function.
#pragma once
#include <optional>
#include <span>

#include "base/types.h"

namespace spillway::data {

/// No tensor of a file has more, so that bytes of any type and the sums of a few of them stay far within 64 bits, and within Shape's bound.
constexpr i64 kMostElements = i64{1} << 56;

/// Their product. None where one is negative or where the product of all but the zeros is beyond kMostElements: the strides of an empty
/// tensor are products of its other extents.
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
