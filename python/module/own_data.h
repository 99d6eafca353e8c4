// Samples that Python code supplies, for a model that reads data of its own: a sequence of dictionaries with one array for each input.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "data/own_samples.h"
#include "python/module/raised.h"

namespace spillway::python {

namespace nb = nanobind;

/// Returns the names, shapes and types of the arrays of a sample, in its order. Floats become `floats`. Throws WrongType or WrongValue,
/// naming `argument`, if the sample is not a dictionary of arrays.
std::vector<InputShape> inputs_of(const nb::object& sample, DType floats, const std::string& argument);

/// Python's sequence of samples. It is read by threads of the run, under the GIL.
struct OwnSequence {
  nb::object samples;
  i64 count = 0;
  std::string argument;  // "data" or "validation_data", for messages
};

/// Returns the source that reads the sequence. What its code raises is kept in `raised`. Both must outlive the source.
std::shared_ptr<data::TensorSource> source_of(const OwnSequence& sequence, const std::vector<InputShape>& inputs, Raised& raised);

}  // namespace spillway::python
