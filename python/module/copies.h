// Makes copy and pickle refuse the library's objects: such an object refers to memory of this process, which no other process can reach.
#pragma once
#include <nanobind/nanobind.h>

namespace spillway::python {

/// Gives every class of the module a __reduce_ex__, which copy and pickle call; it raises an error that says what to do instead.
void refuse_copies(nanobind::module_& module);

}  // namespace spillway::python
