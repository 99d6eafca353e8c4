// Defines Shape, the extents of a tensor (the sizes of its axes): at most 6 of them, stored inline without heap memory. Extents are 64-bit
// because tensors of more than 2^31 elements are common in this program.
#pragma once
#include <array>
#include <initializer_list>
#include <string>

#include "base/types.h"

namespace spillway {

class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;  // creates the shape of a scalar: rank 0, one element
  Shape(std::initializer_list<i64> extents);
  explicit Shape(std::span<const i64> extents);

  int rank() const { return rank_; }
  /// Returns extent `i`; a negative `i` counts from the end. Throws Error(bug) if `i` is out of range.
  i64 operator[](int i) const { return extents_[index(i)]; }
  void set(int i, i64 extent) { extents_[index(i)] = extent; }
  i64 elems() const;
  std::span<const i64> extents() const { return {extents_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const;

 private:
  size_t index(int i) const;
  std::array<i64, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Returns the extents as text: "[2, 3]".
std::string to_string(const Shape& shape);

}  // namespace spillway
