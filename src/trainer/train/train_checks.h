// Declares the checks of a run's model, disk and data that `train` makes before it writes anything.
#pragma once
#include "trainer/run/data_sources.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

/// Throws Error(refused) if the filesystem of --out does not have enough free space for the checkpoints that --keep asks for.
void check_disk(const TrainConfig& config, const Session& session);
/// Throws Error(usage) if the model folder has no weights and new weights were not requested explicitly.
void check_weights(const TrainConfig& config, const ModelSource& source);
/// Collective. Checks that a model which a program built itself gives rows of padding a loss of 0. If steps or validations of
/// this run will be filled up with such rows, evaluates a micro-batch of them, and throws Error(usage) if the loss is not 0.
void check_padding(Session& session, const TrainConfig& config, const RunData& data);

}  // namespace spillway::trainer
