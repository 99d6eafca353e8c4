// The `train` command: takes one rank from its configuration to its last step.
#pragma once
#include "trainer/events/callbacks.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/peers.h"
#include "trainer/run/data_sources.h"
#include "trainer/settings/given.h"

namespace spillway::trainer {

struct TrainingResult {
  bool finished = false;             // false if the run was stopped; running it again continues it
  std::filesystem::path run;         // path of the run folder
  std::filesystem::path checkpoint;  // path of the newest checkpoint; empty if none was saved
};

/// Makes checked settings from the flags of `spillway train`, or from values that a program gives (given_values() in settings/given.h).
/// Reads the files of --config and --deepspeed. Throws Error(usage) for values that are not valid, and without --out, because a program
/// finds its run again by the run's folder.
TrainConfig train_settings(const std::vector<std::string>& flags);
TrainConfig train_settings(const GivenMap& given);
/// Makes settings as train_settings() does, but checks only single values: a required setting may still be missing.
TrainConfig partial_settings(const GivenMap& given);
/// Checks settings that a program filled in itself: each value, and those that must fit together or fit the launcher. Fills in what
/// follows from them. Throws Error(usage).
void check_training(TrainConfig& config);
/// Trains with checked settings, in this process: on one rank, on the rank that a launcher made of this process, or on several ranks that
/// are threads (settings.communicator = "local"). Throws an Error whose code is the exit status of the command. Installs no signal
/// handlers.
TrainingResult train(const TrainConfig& config, const OwnParts& own, const TrainCallbacks& callbacks, Messages& messages);

/// Collective. Trains as one of several ranks. `messages` hears the first rank only. `callbacks` tell a calling program about the run, and
/// `own` holds the model and data that it brings, if any. Returns the exit status of the command. An error common to all ranks is thrown
/// by the first rank only; the others return the error's exit status.
int run_train(const TrainConfig& config, Messages& messages, const Peers& peers, const TrainCallbacks& callbacks = {},
              const OwnParts& own = {});

}  // namespace spillway::trainer
