// Training is `spillway train` as a C++ class: a program trains with everything
// that the command has (memory budgets, tiers, checkpoints, resume, metrics).
//   app::Training training({"--model", "gpt2-tiny", "--data", "kjv.txt", "--validation-fraction", "0.1", "--validate-every", "50"});
//   training.callbacks.on_validate = [](const trainer::ValidationEvent& e) { … };
//   training.callbacks.patience = 3;
//   const trainer::TrainingResult result = training.run();
// Flags, folders and results are those of the command, so the command can continue a run that a program began, and a program one that the
// command began. Not thread-safe.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "app/names.h"
#include "trainer/train/train.h"

namespace spillway::app {

class Training {
 public:
  /// Takes the flags of `spillway train`. --out is required, because a program finds its
  /// run again by the run's folder. Throws Error(usage) for flags that are not valid.
  explicit Training(std::vector<std::string> flags);

  TrainCallbacks callbacks;

  /// Trains to the last step, or until a callback or a stop request ends the run. `results` and `log` receive what the command writes to
  /// stdout and stderr. Throws an Error whose code is the exit status of the command. Several ranks need a launcher, or --communicator
  /// local, which runs them as threads of this process; only rank 0 calls the callbacks. Installs no signal handlers: the calling program
  /// does that.
  TrainingResult run(std::ostream& results, std::ostream& log);

 private:
  const std::vector<std::string> flags_;
};

}  // namespace spillway::app
