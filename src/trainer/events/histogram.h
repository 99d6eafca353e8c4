// A histogram of the values of a tensor, as TensorBoard shows it. The buckets are those of TensorFlow's writer (core/lib/histogram): the
// positive limits are 1e-12 multiplied k = 0, 1, 2, ... times by 1.1, up to 1e20, and then the largest double; the negative limits mirror
// the positive ones, and zero is a limit too. A bucket holds the values from the previous limit (inclusive) to its own limit (exclusive).
// All state consists of integers, whose sums have no rounding errors. So the result does not depend on which process counted which part of
// a tensor, or in which order. An object takes 19 KB.
#pragma once
#include <span>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

/// Returns the upper limit of each bucket, in ascending order. The first bucket is always empty.
const std::vector<double>& bucket_limits();

class Histogram {
 public:
  Histogram();

  /// Counts values. A histogram can hold less than 2^39 values in all.
  void add(std::span<const float> values);
  /// Adds the counts of another part of the tensor.
  void add(const Histogram& other);

  /// These two vectors are the whole state. To merge the histograms of several processes, all-reduce sums() by addition and largest() by
  /// maximum.
  std::vector<i64>& sums() { return sums_; }
  std::vector<i64>& largest() { return largest_; }

  /// The number of values that are NaN or infinite.
  i64 not_finite() const;
  /// The number of finite values. The functions below consider only finite values.
  i64 count() const;
  /// The smallest and the largest value; 0 if there is none.
  double min() const;
  double max() const;
  /// Sums of the values and of their squares. For each binary exponent, the values with this exponent are summed exactly. These sums, one
  /// per exponent, are then added in fp64, from the smallest exponent to the largest.
  double sum() const;
  double sum_of_squares() const;

  struct Buckets {
    std::vector<double> limits, counts;
  };
  /// Returns the buckets from the first to the last that is not empty. Neighbouring empty buckets between them are merged into one. Without
  /// any value the result is a single empty bucket.
  Buckets buckets() const;

 private:
  std::vector<i64> sums_, largest_;
};

}  // namespace spillway::trainer
