// The Python class Training: one training run, of a model that the program knows by name or of blocks written in Python (own_model.h).
#pragma once
#include <functional>
#include <iosfwd>

#include "app/training.h"
#include "python/module/raised.h"

namespace spillway::python {

/// It can run only one training at a time.
struct Trained {
  /// Trains without the GIL. What Python code raises meanwhile is kept in the Raised, which outlives the call.
  std::function<app::TrainingResult(const app::TrainCallbacks&, Raised&, std::ostream& results, std::ostream& log)> run;
  bool trains = false;  // accessed under the GIL
};

}  // namespace spillway::python
