// Defines ByteRange, a value type for a range of bytes within a text or a file.
#pragma once
#include "base/types.h"

namespace spillway {

/// The half-open range of byte offsets [begin, end).
struct ByteRange {
  i64 begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace spillway
