#include "offload/blob.h"

#include <fmt/format.h>

#include "base/error.h"

namespace spillway::offload {

void Blob::check(TileRange range, i64 span_bytes) const {
  if (range.begin >= held_.begin && range.begin <= range.end && range.end <= held_.end && span_bytes == range.count() * tile_bytes_) return;
  throw Error(ErrorCode::bug,
              fmt::format("[blob] expected tiles inside [{}, {}) of {} bytes each, got tiles [{}, {}) and a buffer of {} bytes",
                          held_.begin, held_.end, tile_bytes_, range.begin, range.end, span_bytes));
}

}  // namespace spillway::offload
