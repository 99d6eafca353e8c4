// In what order a mixture's rows come from its sources: each row from the one whose next share falls due first, so that at any row each has
// had its share, to within a few rows, and a few in all. Row k of source s falls due at (2k + 1) / (2 w_s), the order of Webster's method
// of apportionment (Balinski and Young, Fair Representation, 1982); equal ones in the order of the sources. A function of the weights
// alone, found for any row without those before it. Thread-safe.
#pragma once
#include <string>
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

/// From which row of the run on a mixture's weights are in force, and where each source stood there. Checkpoints keep it, so that other
/// weights on the way neither skip nor repeat rows of a source.
struct MixtureStart {
  i64 at = 0;  // row of the run
  // By source:
  std::vector<double> weights;
  std::vector<i64> rows;    // its rows that were consumed before
  std::vector<u64> orders;  // the number of its order among the seed's permutations
  bool operator==(const MixtureStart&) const = default;
};

/// Of a run that begins with these weights.
MixtureStart mixture_from_the_beginning(const std::vector<double>& weights);
/// How many rows of each source come before row `at` of the run, which must not come before start.at.
std::vector<i64> source_rows(const MixtureStart& start, i64 at);
/// The run with other weights from row `at` on. `before` and `now` tell sources apart (by what is in them); of equal ones the first is
/// taken for the first. A source that was there goes on at the row where it stood; a new one begins, in an order that no other one had.
MixtureStart with_other_weights(const MixtureStart& start, const std::vector<std::string>& before, i64 at,
                                const std::vector<std::string>& now, const std::vector<double>& weights);

}  // namespace spillway::data
