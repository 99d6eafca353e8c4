// Mixture decides from which source each row (sample) of a weighted mixture comes: from the source whose next row falls due first. Row k of
// source s, whose weight is w_s, falls due at (2k + 1) / (2 w_s). The resulting order is that of Webster's method of apportionment
// (Balinski and Young, Fair Representation, 1982); ties go to the earlier source. So after any number of rows, each source has had its
// share to within a few rows. The order depends on the weights alone and can be computed for any row without computing the rows before it.
// Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data {

class Mixture {
 public:
  /// Creates a mixture. Only the ratios of the weights matter; they are rounded to integers that add up to about 2^52. Throws Error(bug)
  /// unless each weight is positive and finite.
  explicit Mixture(const std::vector<double>& weights);

  struct Row {
    size_t source;
    i64 row;  // the index of the row within its source, from 0
  };
  /// Returns the source and row at position `at` of the mixture in O(sources² · log sources).
  Row at(i64 at) const;
  /// Returns how many of the first `count` rows come from `source`.
  i64 rows_of(size_t source, i64 count) const;

 private:
  i64 place_of(size_t source, i64 row) const;
  std::vector<u64> weights_;  // integer weights whose sum is about 2^52; each is at least 1
  u64 sum_ = 0;
};

/// The row of the run from which a mixture's weights apply, and how many rows of each source come before that row.
/// Checkpoints store a MixtureStart, so that changing the weights during a run neither skips nor repeats rows of a source.
struct MixtureStart {
  i64 at = 0;  // the row of the run from which the weights apply
  // The vectors from here on have one entry for each source.
  std::vector<double> weights;
  std::vector<i64> rows;    // for each source, the number of rows that were consumed before `at`
  std::vector<u64> orders;  // for each source, the index of its permutation among those that the seed gives
  bool operator==(const MixtureStart&) const = default;
};

/// Returns the start of a run that uses these weights from row 0 on.
MixtureStart mixture_from_the_beginning(const std::vector<double>& weights);
/// Returns how many rows of each source precede row `at` of the run. `at` must not be less than start.at.
std::vector<i64> source_rows(const MixtureStart& start, i64 at);
/// Returns the mixture of a run whose weights change at row `at`. `before` and `now` hold a text for each
/// old and each new source that identifies its contents. Equal texts mean one source; if several sources
/// have equal texts, they are matched in order. A source that was there before continues at the row that
/// it had reached. A new source begins at its first row, with a permutation that no other source has used.
MixtureStart with_other_weights(const MixtureStart& start, const std::vector<std::string>& before, i64 at,
                                const std::vector<std::string>& now, const std::vector<double>& weights);

}  // namespace spillway::data
