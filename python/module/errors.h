// Translates the library's errors into Python exceptions: spillway.SpillwayError and its subclasses, which python/spillway/errors.py
// declares. The message is kept, with what was expected, what was given and what to do. Exceptions of the standard library become
// SpillwayErrors too.
#pragma once
#include <nanobind/nanobind.h>

#include "base/error.h"

namespace spillway::python {

/// Reports an argument with a wrong value: a UsageError in Python that is also a ValueError.
class WrongValue final : public Error {
 public:
  explicit WrongValue(const std::string& what) : Error(ErrorCode::usage, what) {}
};
/// Reports an argument of a wrong type: a UsageError in Python that is also a TypeError.
class WrongType final : public Error {
 public:
  explicit WrongType(const std::string& what) : Error(ErrorCode::usage, what) {}
};
/// Reports an index outside of its axis: a UsageError in Python that is also an IndexError.
class WrongIndex final : public Error {
 public:
  explicit WrongIndex(const std::string& what) : Error(ErrorCode::usage, what) {}
};

/// Registers the translation: an error raises the class that errors.py declares for its exit status.
void bind_errors(nanobind::module_& module);

}  // namespace spillway::python
