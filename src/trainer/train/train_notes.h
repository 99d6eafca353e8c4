// Logs what `train` says about the machine and the run before the first step. Every rank calls these functions, each on its own thread.
#pragma once
#include <string>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/run/session.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Records in `progress` what the rounding of the coming steps depends on besides the configuration: the instruction set or the GPU, and
/// the cuDNN engines, which `attention` names ("" without cuDNN). Warns if earlier steps were computed with another instruction set, GPU or
/// engine. These may sum in another order, so the run continues, but the last bits of its numbers may differ from those of an uninterrupted
/// run.
void note_machine(Progress& progress, const ChosenDevice& device, const std::string& attention, Messages& messages);

/// Logs the model, its size, the device, and the plan.
void tell_of_run(Session& session, const TrainConfig& config, Messages& messages);

}  // namespace spillway::trainer
