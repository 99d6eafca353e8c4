// What a program that trains hears of its run, and may ask of it. All calls come on the thread of the first rank, between steps or before
// the first, in order; what they throw ends the run as an error of training does. Values.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "base/types.h"

namespace spillway::app {

struct StepEvent {
  i64 step = 0, steps = 0;  // this one, from 1, of how many
  double loss = 0;          // the mean over the counted targets of the global batch, before the update
  double grad_norm = 0, learning_rate = 0, seconds = 0;
  i64 tokens = 0;        // images, of image models
  bool skipped = false;  // its gradients were not finite
};

struct ValidationEvent {
  i64 step = 0;
  double loss = 0;
  std::optional<double> accuracy;  // of image models
  bool best = false;               // no loss of this run was lower
};

struct SaveEvent {
  i64 step = 0;
  std::filesystem::path checkpoint;  // durable
};

struct TrainCallbacks {
  std::function<void(const StepEvent&)> on_step;
  std::function<void(const ValidationEvent&)> on_validate;
  std::function<void(const SaveEvent&)> on_save;
  /// Asked after each step, and between micro-batches of a validation and tokens of a sample, which it breaks off: true stops the run as
  /// Ctrl-C does, saved, to be gone on with.
  std::function<bool()> wants_stop;
  /// Asked between the parts of what comes before the first step, which may take minutes: true stops there, with nothing trained.
  std::function<bool()> gives_up;
  /// Above 0: the run is over, as after its last step, once so many validations in a row were no better than the best. A run that goes on
  /// counts those of earlier starts.
  i64 patience = 0;
  /// A checkpoint of each best validation, which stays beside the newest ones of --keep; best.json in the run's folder names it. It also
  /// stays where a later start, by the command too, does not ask for this.
  bool keep_best = false;
};

}  // namespace spillway::app
