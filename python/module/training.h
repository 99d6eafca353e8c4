// The Python class Training: one training run, of a model that the program knows by name or of blocks written in Python (own_model.h).
#pragma once
#include <functional>

#include "python/module/raised.h"
#include "trainer/train/train.h"

namespace spillway::python {

/// One training run; an object can run only one training at a time.
struct Trained {
  /// Trains without holding the GIL. Exceptions of Python code in the meantime are kept in the Raised object, which outlives the call.
  std::function<trainer::TrainingResult(const trainer::TrainCallbacks&, Raised&, trainer::Messages&)> run;
  bool quiet = false, json = false;  // quiet: no log lines are passed on; json: results are passed on as JSON
  bool trains = false;               // true while a training runs; accessed under the GIL
};

}  // namespace spillway::python
