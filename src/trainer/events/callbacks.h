// Callbacks for a program that trains through trainer::Training (training.h). Through them the program learns of steps, validations and
// checkpoints, and may ask the run to stop. All callbacks are called in order on the thread of rank 0, between steps or before the first
// one. An exception from a callback ends the run like an error in training. The types are plain values.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "base/types.h"

namespace spillway::trainer {

struct StepEvent {
  i64 step = 0, steps = 0;  // this step, counted from 1; the number of all steps
  double loss = 0;          // mean over those targets of the global batch that contribute to the loss, computed before the update
  double grad_norm = 0, learning_rate = 0, seconds = 0;
  i64 tokens = 0;        // tokens without padding; for image models the number of images
  i64 positions = 0;     // tokens with padding
  bool skipped = false;  // the update was skipped because the gradients were not finite
};

struct ValidationEvent {
  i64 step = 0;
  double loss = 0;
  std::optional<double> accuracy;  // from 0 to 1; only for image models
  bool best = false;               // this is the lowest validation loss of the run so far
};

struct SaveEvent {
  i64 step = 0;
  std::filesystem::path checkpoint;  // path of the checkpoint, which is on stable storage
};

struct TrainCallbacks {
  std::function<void(const StepEvent&)> on_step;
  std::function<void(const ValidationEvent&)> on_validate;
  std::function<void(const SaveEvent&)> on_save;
  /// Called after each step, and between the micro-batches of a validation and the tokens of a sample. If it returns true, the validation
  /// or sample is broken off and the run stops as after Ctrl-C: its state is saved, and the run can be continued.
  std::function<bool()> wants_stop;
  /// Called during the preparations for the first step, which may take minutes. If it returns true, the run ends before anything is
  /// trained.
  std::function<bool()> gives_up;
  /// Early stopping. If above 0, the run ends, as after its last step, when this many validations in a row were not better than the best
  /// one. In a run that is continued, the validations of earlier starts count too.
  i64 patience = 0;
  /// If true, the checkpoint of the best validation is kept in addition to the newest ones that --keep asks for; best.json in the run
  /// folder names it. A later start of the run keeps it too, even if it does not ask for it.
  bool keep_best = false;
};

}  // namespace spillway::trainer
