// Logs what `train` says about the machine and the run before the first step. Every rank calls these functions, each on its own thread.
#pragma once
#include <string>

#include "app/checkpoints/checkpoint.h"
#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/ranks/device_choice.h"
#include "app/run/session.h"

namespace spillway::app {

/// Records in `progress` what the bits of the coming steps depend on besides the configuration: the instruction set or the GPU,
/// and the cuDNN engines, which `attention` names ("" without cuDNN). Warns if earlier steps were computed with other ones. Those
/// may sum in another order, so the run continues, but the last bits of its numbers may differ from those of an uninterrupted run.
void note_machine(Progress& progress, const ChosenDevice& device, const std::string& attention, Console& console);

/// Logs the model, its size, the device, and the plan.
void tell_of_run(Session& session, const TrainConfig& config, Console& console);

}  // namespace spillway::app
