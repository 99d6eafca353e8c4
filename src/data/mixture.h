// In what order a mixture's rows come from its sources: each row from the one whose next share falls due first, so that at any row each has
// had its share, to within a few rows, and a few in all. Row k of source s falls due at (2k + 1) / (2 w_s), the order of Webster's method
// of apportionment (Balinski and Young, Fair Representation, 1982); equal ones in the order of the sources. A function of the weights
// alone, found for any row without those before it. Thread-safe.
#pragma once
#include <vector>

#include "base/types.h"

namespace spillway::data {

class Mixture {
 public:
  /// Weights of which the ratios count, to 52 bits of their sum, each positive and finite (a bug otherwise).
  explicit Mixture(const std::vector<double>& weights);

  struct Row {
    size_t source;
    i64 row;  // of the source
  };
  /// O(sources² · log sources).
  Row at(i64 at) const;
  /// How many of the first `count` rows are the source's.
  i64 rows_of(size_t source, i64 count) const;

 private:
  i64 place_of(size_t source, i64 row) const;
  std::vector<u64> weights_;  // of about 2^52 in all, each at least 1
  u64 sum_ = 0;
};

}  // namespace spillway::data
