#include "data/loader/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace spillway::data {
namespace {

__extension__ typedef unsigned __int128 u128;
constexpr i64 kBeyond = i64{1} << 62;

}  // namespace

// Stores the weights as integers, so that comparing due times is exact. The weights are first divided by the largest one, because the sum
// of the original weights could exceed the largest double.
Mixture::Mixture(const std::vector<double>& weights) {
  require(!weights.empty(), "[data] expected at least one source in a mixture, got none");
  const double largest = *std::ranges::max_element(weights);
  double sum = 0;
  for (const double w : weights) {
    require(w > 0 && std::isfinite(w), "[data] expected each weight of a mixture to be finite and above 0");
    sum += w / largest;
  }
  for (const double w : weights) {
    weights_.push_back(static_cast<u64>(std::max(1.0, std::nearbyint(w / largest / sum * 0x1p52))));
    sum_ += weights_.back();
  }
}

// Returns the position in the mixture of row `row` of `source`: the number of rows
// of all sources that fall due earlier (mixture.h). The result is at most kBeyond.
i64 Mixture::place_of(size_t source, i64 row) const {
  u128 before = 0;
  for (size_t other = 0; other < weights_.size(); ++other) {
    // `before` counts the rows j of `other` that fall due before row `row` of `source`: (2j + 1) / weight(other) < (2 row + 1) /
    // weight(source). The code multiplies both sides by both weights. If both rows fall due at the same time, the source with the lower
    // index comes first.
    const u128 due = (2 * static_cast<u128>(row) + 1) * weights_[other], each = weights_[source];
    const u128 limit = due + (other < source ? 1 : 0);  // counts the rows j of `other` with (2j + 1) · each < limit
    if (limit > each) before += (limit - each - 1) / (2 * each) + 1;
  }
  return static_cast<i64>(std::min<u128>(before, kBeyond));
}

i64 Mixture::rows_of(size_t source, i64 count) const {
  // When row k of a source falls due, each source has had its share of the rows before it, to within half a row. So k differs from the
  // source's share of `count` rows by at most (sources + 3) / 2, which bounds the binary search.
  const i64 sources = std::ssize(weights_);
  const auto share = static_cast<i64>(static_cast<u128>(count) * weights_[source] / sum_);
  i64 low = std::max<i64>(0, share - sources), high = std::min(count, share + sources + 1);
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (place_of(source, middle) < count) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Mixture::Row Mixture::at(i64 at) const {
  require(at >= 0, "[data] expected a row index of at least 0 in the mixture");
  size_t source = 0;
  i64 row = rows_of(0, at);
  while (place_of(source, row) != at) row = rows_of(++source, at);
  return {source, row};
}

MixtureStart mixture_from_the_beginning(const std::vector<double>& weights) {
  MixtureStart start{.weights = weights, .rows = std::vector<i64>(weights.size()), .orders = std::vector<u64>(weights.size())};
  std::iota(start.orders.begin(), start.orders.end(), u64{0});
  return start;
}

std::vector<i64> source_rows(const MixtureStart& start, i64 at) {
  require(at >= start.at, "[data] expected a row at or after the one from which the mixture's weights apply");
  const Mixture mixture(start.weights);
  std::vector<i64> rows = start.rows;
  for (size_t s = 0; s < rows.size(); ++s) rows[s] += mixture.rows_of(s, at - start.at);
  return rows;
}

MixtureStart with_other_weights(const MixtureStart& start, const std::vector<std::string>& before, i64 at,
                                const std::vector<std::string>& now, const std::vector<double>& weights) {
  require(before.size() == start.weights.size() && now.size() == weights.size(), "[data] expected one weight for each source of a mixture");
  const std::vector<i64> rows = source_rows(start, at);
  u64 unused = start.orders.empty() ? 0 : *std::ranges::max_element(start.orders) + 1;
  std::vector<bool> taken(before.size());
  MixtureStart next{.at = at, .weights = weights, .rows = {}, .orders = {}};
  for (const std::string& source : now) {
    size_t found = 0;
    while (found < before.size() && (taken[found] || before[found] != source)) ++found;
    const bool known = found < before.size();
    if (known) taken[found] = true;
    next.rows.push_back(known ? rows[found] : 0);
    next.orders.push_back(known ? start.orders[found] : unused++);
  }
  return next;
}

}  // namespace spillway::data
