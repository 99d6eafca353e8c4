// Cells of a product of factors for builds that are too slow for the whole.
#pragma once
#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace spillway::test {

/// Every value of every factor at least once: cell i has value i, modulo how many there are, of each.
template <class... T>
std::vector<std::tuple<T...>> diagonal(const std::vector<T>&... factors) {
  std::vector<std::tuple<T...>> cells;
  for (size_t i = 0; i < std::max({factors.size()...}); ++i) cells.emplace_back(factors[i % factors.size()]...);
  return cells;
}

/// begin, begin + 1, … end - 1
template <class T>
std::vector<T> range(T begin, T end) {
  std::vector<T> values(static_cast<size_t>(end - begin));
  std::iota(values.begin(), values.end(), begin);
  return values;
}

}  // namespace spillway::test
