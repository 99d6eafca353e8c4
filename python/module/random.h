// The random numbers of a training loop that the user writes: the first values of Parameters and the masks of Dropout follow from
// manual_seed() and from how many keys were taken since.
#pragma once
#include <nanobind/nanobind.h>

#include "base/random.h"

namespace spillway::python {

/// Returns the next key. Must be called under the GIL.
RandomKey next_key();
void bind_random(nanobind::module_& module);

}  // namespace spillway::python
