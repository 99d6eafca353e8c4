// The `train` command: takes one rank from its configuration to its last step.
#pragma once
#include "app/events/callbacks.h"
#include "app/node/console.h"
#include "app/ranks/peers.h"
#include "app/run/data_sources.h"

namespace spillway::app {

/// Trains as one of several ranks; all ranks call it. Only the first rank prints. Returns the exit status of the command. An error common
/// to all ranks is thrown by the first one only; the others return its exit status.
int run_train(const TrainConfig& config, Console& console, const Peers& peers);
/// Does the same for a program that trains through the C++ or Python interface. `callbacks` tell the program about the run, and `own` holds
/// the model and data that the program brings, if any.
int run_train(const TrainConfig& config, Console& console, const Peers& peers, const TrainCallbacks& callbacks, const OwnParts& own = {});

}  // namespace spillway::app
