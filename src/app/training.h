// Training is `spillway train` as a C++ class: a program trains with everything
// that the command has (memory budgets, tiers, checkpoints, resume, metrics).
//   app::Training training({"--model", "gpt2-tiny", "--data", "kjv.txt", "--validation-fraction", "0.1", "--validate-every", "50"});
//   training.callbacks.on_validate = [](const trainer::ValidationEvent& e) { … };
//   training.callbacks.patience = 3;
//   const trainer::TrainingResult result = training.run();
// The files of --config and --deepspeed are read when the object is made. Flags, folders and results are those of the command, so the
// command can continue a run that a program began, and a program one that the command began. Not thread-safe.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "trainer/settings/given.h"
#include "trainer/train/train.h"

namespace spillway::app {

/// Makes settings from values that the user gave, as flags (parse_flags() in given.h) or from a program (given_values()). Reads the files
/// of --config and --deepspeed; `notes` receives remarks on the latter. Throws Error(usage) for values that are not valid.
TrainConfig training_settings(const GivenMap& given, std::vector<std::string>& notes);

class Training {
 public:
  /// Takes the flags of `spillway train`. --out is required, because a program finds its
  /// run again by the run's folder. Throws Error(usage) for flags that are not valid.
  explicit Training(const std::vector<std::string>& flags);
  /// Takes settings and notes of training_settings().
  Training(TrainConfig settings, std::vector<std::string> notes) : settings_(std::move(settings)), notes_(std::move(notes)) {}

  TrainCallbacks callbacks;

  /// Trains to the last step, or until a callback or a stop request ends the run. `results` and `log` receive what the command writes to
  /// stdout and stderr. Throws an Error whose code is the exit status of the command. Several ranks need a launcher, or --communicator
  /// local, which runs them as threads of this process; only rank 0 calls the callbacks. Installs no signal handlers: the calling program
  /// does that.
  TrainingResult run(std::ostream& results, std::ostream& log);

 private:
  TrainConfig settings_;
  std::vector<std::string> notes_;  // remarks on the DeepSpeed configuration file, if one is given
};

}  // namespace spillway::app
