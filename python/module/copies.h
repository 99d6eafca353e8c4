// Makes copy and pickle refuse the library's objects: such an object refers to memory of this process, which no other process can reach.
#pragma once
#include <nanobind/nanobind.h>

namespace spillway::python {

/// Gives every class of the module a __reduce_ex__ that raises an error which says what to do instead. copy and pickle call __reduce_ex__.
void refuse_copies(nanobind::module_& module);

}  // namespace spillway::python
