// copy and pickle: an object of the library is memory and a place in it, which no other process has.
#pragma once
#include <nanobind/nanobind.h>

namespace spillway::python {

/// Gives every class of the module a __reduce_ex__ that refuses with what to do instead: copy and pickle ask it.
void refuse_copies(nanobind::module_& module);

}  // namespace spillway::python
