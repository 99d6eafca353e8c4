// Callbacks tell a program that trains through trainer::Training (training.h) of steps, validations and checkpoints, and
// let it ask the run to stop. All callbacks are called in order on the thread of rank 0, between steps or before the
// first step. An exception from a callback ends the run like an error in training. The types are plain values.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "base/types.h"

namespace spillway::trainer {

struct StepEvent {
  i64 step = 0, steps = 0;  // number of this step, counted from 1; number of the last step
  double loss = 0;          // mean over the targets of the global batch that contribute to the loss, before the update
  double grad_norm = 0, learning_rate = 0, seconds = 0;
  i64 tokens = 0;        // tokens without padding; images for an image model
  i64 positions = 0;     // tokens including padding
  bool skipped = false;  // true if the update was skipped because the gradients were not finite
};

struct ValidationEvent {
  i64 step = 0;
  double loss = 0;
  std::optional<double> accuracy;  // top-1 accuracy, from 0 to 1; only for image models
  bool best = false;               // true if this is the lowest validation loss of the run so far
};

struct SaveEvent {
  i64 step = 0;
  std::filesystem::path checkpoint;  // path of the checkpoint, which is already on stable storage
};

struct TrainCallbacks {
  std::function<void(const StepEvent&)> on_step;
  std::function<void(const ValidationEvent&)> on_validate;
  std::function<void(const SaveEvent&)> on_save;
  /// Called after each step, and between the micro-batches of a validation and the tokens of a sample. If it returns true, the current
  /// validation or generated sample ends early and the run stops as after Ctrl-C: its state is saved, and the run can be continued.
  std::function<bool()> wants_stop;
  /// Called during the preparations for the first step, which may take
  /// minutes. If it returns true, the run ends before anything is trained.
  std::function<bool()> gives_up;
  /// `patience` asks for early stopping. If it is above 0, the run ends after `patience` validations in a row that were not better than
  /// the best one, and finishes as after its last step. In a run that is continued, the validations of earlier starts count too.
  i64 patience = 0;
  /// If true, the checkpoint of the best validation is kept in addition to the newest ones that --keep asks for, and best.json
  /// in the run folder names it. A later start of the run keeps that checkpoint too, even if keep_best is then false.
  bool keep_best = false;
};

}  // namespace spillway::trainer
