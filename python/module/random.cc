#include "python/module/random.h"

#include "python/module/arguments.h"

namespace spillway::python {
namespace {

// seed: the number given to manual_seed(); taken: how many keys were made since. Accessed under the GIL.
u64 seed = 0, taken = 0;

}  // namespace

RandomKey next_key() { return RandomKey{seed}.derive("own loop", taken++); }

void bind_random(nb::module_& module) {
  module.def(
      "manual_seed", [](const Seed& given) { seed = given, taken = 0; }, nb::arg("seed"),
      "Sets the seed from which new Parameters and Dropout draw in your own loop; at first it is 0. Model and Trainer have seeds of their "
      "own.");
  module.def("_next_seed", [] { return next_key().value; });
}

}  // namespace spillway::python
