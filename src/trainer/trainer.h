// Trainer trains a model that a program builds itself with everything that `spillway train` has: memory budgets, tiers, ZeRO, pipelines,
// checkpoints, resume, validation and metrics.
//   app::TrainConfig settings;
//   settings.out = "runs/mine";
//   settings.steps = 1000;
//   settings.placement->optimizer = app::PlacementWish::whole(offload::Tier::nvme);
//   Trainer trainer("mine", build, settings);  // build(dtype) returns an nn::Sequential of the program's blocks
//   trainer.callbacks.on_step = [](const app::StepEvent& e) { … };
//   trainer.fit({.training = [] { return data::samples_of(…); }});
// The run folder has the form that `spillway train` gives it: `spillway status`, `top`, `report` and `inspect` read it, and the same
// program resumes it after a kill, on any placement and on another number of ranks.
#pragma once
#include <functional>
#include <iosfwd>
#include <string>

#include "app/flags/placement_settings.h"
#include "app/flags/run_settings.h"
#include "app/run/data_sources.h"
#include "app/training.h"

namespace spillway {

class Trainer {
 public:
  /// `build` makes the model's blocks with weights of the given type, without memory (nn/module.h). Each rank of this process calls it,
  /// some several times; it must always make the same blocks. A model reads tokens, or images if it sets Sequential::image_CHW, or the
  /// tensors of Sequential::inputs. `name` appears in the run folder and in messages. Throws Error(usage) for settings that are not valid;
  /// settings.out is required, since it is where an interrupted run is found again.
  Trainer(std::string name, std::function<nn::Sequential(DType)> build, const app::TrainConfig& settings);
  /// Trains a model that the program knows by name: a preset or a folder (settings.model).
  explicit Trainer(const app::TrainConfig& settings);

  app::TrainCallbacks callbacks;

  /// Trains on `data` to the last step, or until a callback or a stop request ends the run. If `data` has no samples, the files of
  /// settings.data are read. `results` and `log` receive what the command writes to stdout and stderr. Throws an Error whose code is the
  /// command's exit status. Several ranks need a launcher, or settings.communicator = "local", which runs them as threads of this process;
  /// only rank 0 calls the callbacks. Installs no signal handlers.
  app::TrainingResult fit(const app::OwnData& data, std::ostream& results, std::ostream& log);
  /// Does the same, but writes no output.
  app::TrainingResult fit(const app::OwnData& data);

 private:
  app::TrainConfig settings_;
  const std::function<nn::Sequential(DType)> build_;
};

}  // namespace spillway
