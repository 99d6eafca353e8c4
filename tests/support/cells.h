// Enumerates the product of several factors in two parts, so that builds which are too slow for the whole product can run the first part
// alone.
#pragma once
#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace spillway::test {

/// Returns the numbers begin, begin + 1, … end - 1.
template <class T>
std::vector<T> range(T begin, T end) {
  std::vector<T> values(static_cast<size_t>(end - begin));
  std::iota(values.begin(), values.end(), begin);
  return values;
}

template <class... T>
struct Cells {
  // cells in which every value occurs: cell i has value i of each factor, modulo the number of values
  std::vector<std::tuple<T...>> diagonal;
  std::vector<std::tuple<T...>> rest;  // all other cells of the product
};

template <class... T>
Cells<T...> cells_of(const std::vector<T>&... factors) {
  Cells<T...> cells;
  for (size_t i = 0; i < std::max({factors.size()...}); ++i) cells.diagonal.emplace_back(factors[i % factors.size()]...);
  for (size_t n = 0; n < (factors.size() * ...); ++n) {
    size_t left = n;
    const auto digit = [&](size_t base) {
      const size_t at = left % base;
      left /= base;
      return at;
    };
    const std::tuple<T...> cell{factors[digit(factors.size())]...};
    if (std::find(cells.diagonal.begin(), cells.diagonal.end(), cell) == cells.diagonal.end()) cells.rest.push_back(cell);
  }
  return cells;
}

}  // namespace spillway::test
