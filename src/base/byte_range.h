// A part of a text or a file. A value.
#pragma once
#include "base/types.h"

namespace spillway {

/// Bytes [begin, end).
struct ByteRange {
  i64 begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace spillway
