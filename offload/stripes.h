// Maps the store's linear data range to its files: whole stripe units, assigned in proportion to the weights and spread as evenly as they
// allow (offload/store_format.h documents the order). Offsets are within a file's data, which begins behind its header. Immutable,
// thread-safe.
#pragma once
#include <vector>

#include "base/types.h"

namespace spillway::offload {

class Stripes {
 public:
  struct Extent {
    i64 file = 0;
    i64 offset = 0;  // offset from the beginning of the file's data
    i64 bytes = 0;
  };

  /// Throws Error(bug) for no file or too many, a weight outside 1..kMaxWeight, or sizes that are not multiples of the page size.
  Stripes(std::vector<u32> weights, i64 unit_bytes, i64 data_bytes);

  i64 files() const { return std::ssize(weights_); }
  const std::vector<u32>& weights() const { return weights_; }
  i64 data_bytes() const { return data_bytes_; }
  i64 file_data_bytes(i64 file) const;
  /// Returns the parts of the files that hold the data bytes [begin, begin + bytes), in order; parts that touch in a file are joined.
  std::vector<Extent> extents(i64 begin, i64 bytes) const;

 private:
  struct Place {
    i64 file = 0, rank = 0;  // a stripe unit: the one with number `rank`, counted from 0, among those that `file` gets in a round
  };
  void deal_round();

  const std::vector<u32> weights_;
  std::vector<i64> per_round_;  // number of stripe units that each file gets in a round
  std::vector<Place> round_;
  const i64 unit_bytes_, data_bytes_;
};

}  // namespace spillway::offload
