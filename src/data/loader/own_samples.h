// Defines the samples that a program supplies itself, for models that name their
// inputs (nn::Sequential::inputs). Each sample has one tensor for each input.
#pragma once
#include <memory>
#include <span>

#include "data/loader/samples.h"

namespace spillway::data {

/// The interface that a program implements to supply its data. Several threads of the loader may call both functions at the same time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Returns the number of samples. The number must not change while a run reads the samples.
  virtual i64 samples() const = 0;
  /// Writes the sample with index `index`, counted from 0, into `out`: out[k] is a contiguous host tensor of the shape and
  /// type of input k, filled with zeros. Every call for an index must give equal values; otherwise the run cannot be repeated.
  virtual void read(i64 index, std::span<const Tensor> out) const = 0;
  /// Like read(). `row` is the sample's row among all that the run reads, by which a source in a fixed order tells its epochs apart.
  virtual void read_row(i64 index, i64 row, std::span<const Tensor> out) const { static_cast<void>(row), read(index, out); }
  /// Returns the number of targets of a sample that read() has written, by which its loss is weighted in the mean of a step.
  virtual i64 targets(std::span<const Tensor> sample) const { return static_cast<void>(sample), 1; }
  /// Returns true if samples are best read one after the other, beginning with the first, and samples() may be larger than the number that
  /// there are. Whether two runs have the same data is then judged by the first samples.
  virtual bool is_stream() const { return false; }
  /// Returns the largest value that targets() returns.
  virtual i64 most_targets() const { return 1; }
};

/// Returns the samples of `source`. Throws Error(usage) if there are no inputs or a name occurs twice.
std::unique_ptr<Samples> samples_of(std::shared_ptr<const TensorSource> source, std::vector<InputShape> inputs);

}  // namespace spillway::data
