// Logs what `train` says about the machine and the run before the first step. Every rank calls these functions, each on its own thread.
#pragma once
#include <string>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/session.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Records in `progress` what the rounding of the coming steps depends on besides the configuration: the instruction set or the GPU, and
/// the cuDNN engines, which `attention` names ("" without cuDNN). Warns if earlier steps were computed with another instruction set, GPU or
/// engine. These may sum in another order, so the run continues, but the last bits of its numbers may differ from those of an uninterrupted
/// run.
void note_machine(Progress& progress, const ChosenDevice& device, const std::string& attention, Messages& messages);

/// Returns three lines about a resolved run, without a line break at the end: the model and its weights, where `weights` says what these
/// are at first; the data and the tokenizer; the rows of a step, the learning rate and the length of an epoch.
std::string opening_text(const Session& session, const TrainConfig& config, const RunData& data, const std::string& weights);

/// Logs the threads, how GPUs meet, and the plan. Warns if host memory cannot be pinned.
void tell_of_plan(Session& session, const TrainConfig& config, Messages& messages);

}  // namespace spillway::trainer
