// Trainer trains a model that a program builds itself with everything that `spillway train` has: memory budgets, tiers, ZeRO, pipelines,
// checkpoints, resume, validation and metrics.
//   trainer::TrainConfig settings;
//   settings.out = "runs/mine";
//   settings.steps = 1000;
//   settings.placement->optimizer = trainer::PlacementWish::whole(offload::Tier::nvme);
//   Trainer trainer("mine", build, settings);  // build(dtype) returns an nn::Sequential of the program's blocks
//   trainer.callbacks.on_step = [](const trainer::StepEvent& e) { … };
//   trainer.fit({.training = [] { return data::samples_of(…); }});
// The run folder has the same files as one of `spillway train`: `spillway status`, `top`, `report` and `inspect` read it, and the same
// program resumes it after a kill, with the data in any tiers and on another number of ranks.
#pragma once
#include <functional>
#include <string>

#include "trainer/settings/placement_settings.h"
#include "trainer/settings/run_settings.h"
#include "trainer/train/train.h"

namespace spillway {

class Trainer {
 public:
  /// `build` makes the model's blocks with weights of the given type, without memory (nn/module.h). Each rank of this process calls
  /// it, some several times; it must always make the same blocks. A model reads tokens, or images if it sets Sequential::image_CHW,
  /// or the tensors of Sequential::inputs. `name` appears in the run folder and in messages. Throws Error(usage) for settings that
  /// are not valid. settings.out is required, since an interrupted run is found again by its folder.
  Trainer(std::string name, std::function<nn::Sequential(DType)> build, const trainer::TrainConfig& settings);
  /// Trains a model that Spillway knows by name: a preset or a folder (settings.model). train_settings() makes settings from the flags of
  /// `spillway train`; the command can then continue the run, and a program one that the command began.
  explicit Trainer(const trainer::TrainConfig& settings);

  trainer::TrainCallbacks callbacks;

  /// Trains on `data` to the last step, or until a callback or a stop request ends the run. If `data` has no samples, the files of
  /// settings.data are read. `messages` receives the lines that the command writes; LineMessages passes them to a function. Throws an Error
  /// whose code is the command's exit status. Several ranks need a launcher, or settings.communicator = "local", which runs them as threads
  /// of this process; only rank 0 calls the callbacks. Installs no signal handlers.
  trainer::TrainingResult fit(const trainer::OwnData& data, trainer::Messages& messages);
  /// Trains like the fit() above, but passes on no lines.
  trainer::TrainingResult fit(const trainer::OwnData& data = {});

 private:
  trainer::TrainConfig settings_;
  const std::function<nn::Sequential(DType)> build_;
};

}  // namespace spillway
