// The checks of a run's model, disk and data that `train` makes before it writes anything.
#pragma once
#include "trainer/run/data_sources.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

/// Throws Error(refused) if the filesystem of --out has no room for the checkpoints that --keep asks for.
void check_disk(const TrainConfig& config, const Session& session);
/// Throws Error(usage) if the model folder has no weights and new ones were not requested explicitly.
void check_weights(const TrainConfig& config, const ModelSource& source);
/// A model that a program built itself must give rows of padding a loss of 0. If steps or validations of this run will be filled up with
/// such rows, evaluates a micro-batch of them, and throws Error(usage) if the loss is not 0. All ranks call it together.
void check_padding(Session& session, const TrainConfig& config, const RunData& data);

}  // namespace spillway::trainer
