// Samples that Python code supplies, for a model that declares its own inputs: a sequence of dictionaries with one array for each input, or
// a dictionary of arrays with one row for each sample.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/loader/own_samples.h"
#include "python/module/raised.h"

namespace spillway::python {

namespace nb = nanobind;

struct OwnSamples {
  nb::object sequence;          // the samples; threads of the run read it under the GIL; invalid if there are columns
  std::vector<Tensor> columns;  // the arrays, converted to the types of the inputs; read without the GIL
  i64 count = 0;
  std::string argument;            // the argument's name for messages: "data" or "validation_data"
  std::vector<InputShape> inputs;  // the names, shapes and types in the first sample
  // How a sample is weighted in the mean of a step's losses: as one target, by its labels that are not negative, or, if the model predicts
  // the next token, by those labels behind the first one.
  enum class Weight { one, labels, next_labels } weight = Weight::one;
  bool of_torch = false;   // `sequence` is a Samples of spillway/torch/_data.py
  bool is_stream = false;  // data::TensorSource::is_stream
  i64 targets(std::span<const Tensor> sample) const;
  i64 most_targets() const;
};

/// Reads the first sample, or all columns. Floats become `floats`. Throws WrongType or WrongValue, naming `argument`, for another object
/// and for arrays that cannot be samples. Must be called under the GIL.
OwnSamples own_samples(const nb::object& given, DType floats, const std::string& argument);

/// Returns the source of these samples. Exceptions of their Python code are kept in `raised`. `given` and `raised` must outlive the
/// source.
std::shared_ptr<data::TensorSource> source_of(const OwnSamples& samples, Raised& raised);

}  // namespace spillway::python
