// How the values of a tensor are spread, as TensorBoard shows it: counted in the buckets of TensorFlow's writer (core/lib/histogram), of
// which limit k above zero is 1e-12 multiplied k times by 1.1, up to 1e20, and then the largest double; those below zero are their
// negatives, and zero is a limit too. A bucket has the values from the limit before its own (inclusive) to its own (exclusive).
// All that is kept are whole numbers, so that it does not matter who counted which part of a tensor, or in which order. A value of 19 KB.
#pragma once
#include <span>
#include <vector>

#include "base/types.h"

namespace spillway::app {

/// The upper limit of each bucket, ascending; the first bucket is always empty.
const std::vector<double>& bucket_limits();

class Histogram {
 public:
  Histogram();

  /// Less than 2^39 in all.
  void add(std::span<const float> values);
  /// What was counted of another part of the tensor.
  void add(const Histogram& other);

  /// All that it is, for parts that other processes count: numbers that are to be added up, and numbers the largest of which is to be
  /// taken.
  std::vector<i64>& sums() { return sums_; }
  std::vector<i64>& largest() { return largest_; }

  i64 not_finite() const;
  /// Values that are finite. What follows is of these alone.
  i64 count() const;
  /// 0 of none.
  double min() const;
  double max() const;
  /// Exact among values of one exponent; then fp64, from the smallest exponent to the largest.
  double sum() const;
  double sum_of_squares() const;

  struct Buckets {
    std::vector<double> limits, counts;
  };
  /// From the first bucket that is not empty to the last; between them neighbours that are empty are one. Of no value a single empty one.
  Buckets buckets() const;

 private:
  std::vector<i64> sums_, largest_;
};

}  // namespace spillway::app
