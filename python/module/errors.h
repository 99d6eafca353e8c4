// The library's errors as Python's exceptions: spillway.SpillwayError and its kinds, which python/spillway/errors.py declares. An error's
// words are kept, with what was expected, what came and what to do. What the standard library throws becomes one of them too.
#pragma once
#include <nanobind/nanobind.h>

#include "base/error.h"

namespace spillway::python {

/// An argument with a wrong value: a UsageError, which Python knows as a ValueError too.
class WrongValue final : public Error {
 public:
  explicit WrongValue(const std::string& what) : Error(ErrorCode::usage, what) {}
};
/// An argument of a wrong type: a UsageError that is a TypeError too.
class WrongType final : public Error {
 public:
  explicit WrongType(const std::string& what) : Error(ErrorCode::usage, what) {}
};
/// An index outside of its axis: a UsageError that is an IndexError too.
class WrongIndex final : public Error {
 public:
  explicit WrongIndex(const std::string& what) : Error(ErrorCode::usage, what) {}
};

/// Errors raise what errors.py has for their exit status.
void bind_errors(nanobind::module_& module);

}  // namespace spillway::python
