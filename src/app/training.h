// `spillway train` as a call: a program's own training run, with all that a planned run has (budgets, tiers, checkpoints, resume, metrics).
//   app::Training training({"--model", "gpt2-tiny", "--data", "kjv.txt", "--validation-fraction", "0.1", "--validate-every", "50"});
//   training.callbacks.on_validate = [](const app::ValidationEvent& e) { … };
//   training.callbacks.patience = 3;
//   const app::TrainingResult result = training.run();
// Flags, folders and numbers are those of the command: the same run may go on under it, and the other way round. Not thread-safe.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "app/events/callbacks.h"

namespace spillway::app {

struct TrainingResult {
  bool finished = false;  // else stopped: run it again to go on
  std::filesystem::path run;
  std::filesystem::path checkpoint;  // the newest; empty: none was saved
};

class Training {
 public:
  /// Flags of `spillway train`, --out among them (a program's run is found by its folder). Error(usage).
  explicit Training(std::vector<std::string> flags);

  TrainCallbacks callbacks;

  /// Trains to the last step, or until callbacks or a stop end it; what the command writes to stdout and stderr goes to `results` and
  /// `log`. Throws Error with what the command would exit with. Several ranks are a launcher's, or with --communicator local threads of
  /// this process; the first one alone hears the callbacks. No signal is handled: that is the program's.
  TrainingResult run(std::ostream& results, std::ostream& log);

 private:
  const std::vector<std::string> flags_;
};

}  // namespace spillway::app
