// What `train` says of the machine and of the run before the first step. For the thread of each rank; every rank calls them.
#pragma once
#include <string>

#include "app/checkpoints/checkpoint.h"
#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/ranks/device_choice.h"
#include "app/run/session.h"

namespace spillway::app {

/// Writes into `progress` what the bits of the steps to come depend on beside the configuration: the instruction set or the GPU, and
/// `attention`, the engines of cuDNN ("" without). Warns if the steps so far were made on another one: it sums in another order, so the run
/// goes on, but no longer with the bits that it would have had.
void note_machine(Progress& progress, const ChosenDevice& device, const std::string& attention, Console& console);

/// Logs the model, its size, where it is computed, and the plan.
void tell_of_run(Session& session, const TrainConfig& config, Console& console);

}  // namespace spillway::app
