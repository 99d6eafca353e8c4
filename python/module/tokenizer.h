// Defines the Python class Tokenizer.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "data/tokenizer/tokenizer.h"

namespace spillway::python {

struct Tokenizer {
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

void bind_tokenizer(nanobind::module_& module);

}  // namespace spillway::python
