// Makes covering arrays: few rows of values for many factors, in which every possible triple of values of any three factors occurs. The
// algorithm is greedy, after Cohen, Dalal, Fredman and Patton, "The AETG system" (1997): each row is the best of some random ones, each
// begun with a missing triple. The same arguments give the same rows on every machine.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/types.h"

namespace spillway::test {

/// A row holds the value of each factor, counted from 0, or kOpen if none is chosen yet.
using Row = std::vector<int>;
constexpr int kOpen = -1;

class CoveringArray {
 public:
  /// `sizes` has the number of values of each factor. `possible` tells whether some allowed row completes the kOpen entries of a row.
  using Possible = std::function<bool(const Row&)>;
  CoveringArray(std::vector<int> sizes, Possible possible, unsigned seed)
      : sizes_(std::move(sizes)), possible_(std::move(possible)), random_(seed) {
    list_missing();
    while (!missing_.empty()) add_best_row();
    put_pairs_first();
  }
  const std::vector<Row>& rows() const { return rows_; }
  /// Returns how many of the first rows are enough to hold every pair of values that occurs in any row. They are far fewer than all rows.
  size_t rows_for_pairs() const { return rows_for_pairs_; }

 private:
  static constexpr int kCandidates = 12;
  struct Triple {
    int factor[3], value[3];
  };

  size_t index(const int (&f)[3], const int (&v)[3]) const {
    size_t at = 0;
    for (const int i : f) at = at * sizes_.size() + static_cast<size_t>(i);
    for (const int x : v) at = at * most_values() + static_cast<size_t>(x);
    return at;
  }
  size_t most_values() const { return static_cast<size_t>(*std::max_element(sizes_.begin(), sizes_.end())); }
  int factors() const { return static_cast<int>(sizes_.size()); }
  Row open() const { return Row(sizes_.size(), kOpen); }

  void list_missing() {
    const size_t f = sizes_.size(), v = most_values();
    is_missing_.assign(f * f * f * v * v * v, 0);
    Triple t{};
    for (t.factor[0] = 0; t.factor[0] < factors(); ++t.factor[0]) {
      for (t.factor[1] = t.factor[0] + 1; t.factor[1] < factors(); ++t.factor[1]) {
        for (t.factor[2] = t.factor[1] + 1; t.factor[2] < factors(); ++t.factor[2]) list_values(t);
      }
    }
  }
  void list_values(Triple t) {
    const auto values = [&](int i) { return sizes_[static_cast<size_t>(t.factor[i])]; };
    for (t.value[0] = 0; t.value[0] < values(0); ++t.value[0]) {
      for (t.value[1] = 0; t.value[1] < values(1); ++t.value[1]) {
        for (t.value[2] = 0; t.value[2] < values(2); ++t.value[2]) {
          if (!possible_(begun_with(t))) continue;
          missing_.push_back(t);
          is_missing_[index(t.factor, t.value)] = 1;
        }
      }
    }
  }
  Row begun_with(const Triple& t) const {
    Row row = open();
    for (int i = 0; i < 3; ++i) row[static_cast<size_t>(t.factor[i])] = t.value[i];
    return row;
  }

  // Returns the number of missing triples in `row` that include the value of `factor`.
  int gain(const Row& row, int factor) const {
    int found = 0;
    for (int a = 0; a < factors(); ++a) {
      if (a == factor || row[static_cast<size_t>(a)] == kOpen) continue;
      for (int b = a + 1; b < factors(); ++b) {
        if (b == factor || row[static_cast<size_t>(b)] == kOpen) continue;
        int f[3] = {a, b, factor};
        std::sort(f, f + 3);
        const int v[3] = {row[static_cast<size_t>(f[0])], row[static_cast<size_t>(f[1])], row[static_cast<size_t>(f[2])]};
        found += is_missing_[index(f, v)];
      }
    }
    return found;
  }

  Row candidate() {
    Row row = begun_with(missing_[random_() % missing_.size()]);
    std::vector<int> order(sizes_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    for (const int factor : order) {
      int& value = row[static_cast<size_t>(factor)];
      if (value != kOpen) continue;
      int best = kOpen, most = -1;
      const int values = sizes_[static_cast<size_t>(factor)], first = static_cast<int>(random_() % static_cast<unsigned>(values));
      for (int n = 0; n < values; ++n) {
        value = (first + n) % values;
        const int found = possible_(row) ? gain(row, factor) : -1;
        if (found > most) most = found, best = value;
      }
      // If no value adds a missing triple, the first possible value is taken, since trying all others would cost time.
      if (most == 0) {
        for (best = 0; value = best, !possible_(row);) ++best;
      }
      value = best;
    }
    return row;
  }

  bool holds(const Row& row, const Triple& t) const {
    for (int i = 0; i < 3; ++i) {
      if (row[static_cast<size_t>(t.factor[i])] != t.value[i]) return false;
    }
    return true;
  }

  void add_best_row() {
    Row best;
    i64 most = -1;
    for (int n = 0; n < kCandidates; ++n) {
      const Row row = candidate();
      const i64 found = std::count_if(missing_.begin(), missing_.end(), [&](const Triple& t) { return holds(row, t); });
      if (found > most) most = found, best = row;
    }
    std::erase_if(missing_, [&](const Triple& t) {
      if (!holds(best, t)) return false;
      is_missing_[index(t.factor, t.value)] = 0;
      return true;
    });
    rows_.push_back(std::move(best));
  }

  using Pair = std::array<int, 4>;
  std::vector<Pair> pairs_of(const Row& row) const {
    std::vector<Pair> pairs;
    for (int a = 0; a < factors(); ++a) {
      for (int b = a + 1; b < factors(); ++b) pairs.push_back({a, b, row[static_cast<size_t>(a)], row[static_cast<size_t>(b)]});
    }
    return pairs;
  }

  // Moves the row with the most new pairs to the front, again and again, until no row has a pair that the rows before it lack.
  void put_pairs_first() {
    std::set<Pair> held;
    const auto gain = [&](const Row& row) {
      return std::ranges::count_if(pairs_of(row), [&](const Pair& p) { return !held.contains(p); });
    };
    for (auto next = rows_.begin(); next != rows_.end(); ++next) {
      const auto best = std::ranges::max_element(next, rows_.end(), {}, gain);
      if (gain(*best) == 0) break;
      std::rotate(next, best, best + 1);
      for (const Pair& p : pairs_of(*next)) held.insert(p);
      ++rows_for_pairs_;
    }
  }

  const std::vector<int> sizes_;
  const Possible possible_;
  std::mt19937 random_;
  std::vector<Triple> missing_;
  std::vector<char> is_missing_;
  std::vector<Row> rows_;
  size_t rows_for_pairs_ = 0;
};

}  // namespace spillway::test
