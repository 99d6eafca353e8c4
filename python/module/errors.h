// The library's errors as Python's exceptions: spillway.SpillwayError and its kinds, which python/spillway/errors.py declares. An error's
// words are kept, with what was expected, what came and what to do.
#pragma once
#include <nanobind/nanobind.h>

namespace spillway::python {

/// Errors raise what errors.py has for their exit status.
void bind_errors(nanobind::module_& module);

}  // namespace spillway::python
