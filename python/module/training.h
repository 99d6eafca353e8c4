// The Python class Training: one training run, of a model that the program knows by name or of blocks written in Python (own_model.h).
#pragma once
#include <functional>

#include "python/module/raised.h"
#include "trainer/train/train.h"

namespace spillway::python {

/// It can run only one training at a time.
struct Trained {
  /// Trains without the GIL. What Python code raises meanwhile is kept in the Raised, which outlives the call.
  std::function<trainer::TrainingResult(const trainer::TrainCallbacks&, Raised&, trainer::Messages&)> run;
  bool quiet = false, json = false;  // which lines the run passes on, and how
  bool trains = false;               // accessed under the GIL
};

}  // namespace spillway::python
