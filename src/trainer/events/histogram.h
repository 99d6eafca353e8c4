// Histogram is a histogram of the values of a tensor, as TensorBoard shows it. The buckets are those of TensorFlow's writer
// (core/lib/histogram): the positive limits are 1e-12 multiplied k = 0, 1, 2, ... times by 1.1, up to 1e20, and then the largest double;
// the negative limits mirror the positive ones, and zero is a limit too. A bucket holds the values from the previous limit (inclusive) to
// its own limit (exclusive). All state consists of integers, whose sums have no rounding errors. The result therefore does not depend on
// which process counted which part of a tensor, or in which order. A Histogram takes 19 KB.
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

  /// Counts the given values. A histogram can hold fewer than 2^39 values in all.
  void add(std::span<const float> values);
  /// Adds the counts of another histogram, which counted another part of the tensor.
  void add(const Histogram& other);

  /// sums() and largest() are the whole state of the histogram. To merge the histograms
  /// of several processes, all-reduce sums() by addition and largest() by maximum.
  std::vector<i64>& sums() { return sums_; }
  std::vector<i64>& largest() { return largest_; }

  /// Returns the number of values that are NaN or infinite.
  i64 not_finite() const;
  /// Returns the number of finite values. min(), max(), sum(), sum_of_squares() and buckets() consider only finite values.
  i64 count() const;
  /// Return the smallest and the largest value, or 0 if there is no value.
  double min() const;
  double max() const;
  /// Return the sums of the values and of their squares. For each binary exponent, the values with this exponent are
  /// summed exactly. These sums, one per exponent, are then added in fp64, from the smallest exponent to the largest.
  double sum() const;
  double sum_of_squares() const;

  struct Buckets {
    std::vector<double> limits, counts;
  };
  /// Returns the buckets from the first nonempty one to the last nonempty one. Neighbouring empty buckets within this range are merged into
  /// one. If there is no value, the result is a single empty bucket.
  Buckets buckets() const;

 private:
  std::vector<i64> sums_, largest_;
};

}  // namespace spillway::trainer
