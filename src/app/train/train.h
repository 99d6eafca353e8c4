// Implements the `train` command: takes one rank from its configuration to its last step.
#pragma once
#include "app/events/callbacks.h"
#include "app/node/console.h"
#include "app/ranks/peers.h"
#include "app/run/data_sources.h"

namespace spillway::app {

/// Collective. Trains as one of several ranks. Only the first rank prints. Returns the exit status of the command.
/// An error common to all ranks is thrown by the first rank only; the others return the error's exit status.
int run_train(const TrainConfig& config, Console& console, const Peers& peers);
/// Trains like run_train(config, console, peers), for a program that uses the C++ or Python interface. `callbacks`
/// tell the program about the run, and `own` holds the model and data that the program brings, if any.
int run_train(const TrainConfig& config, Console& console, const Peers& peers, const TrainCallbacks& callbacks, const OwnParts& own = {});

}  // namespace spillway::app
