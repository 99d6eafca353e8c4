// What `train` checks of a run's model, disk and data before it writes anything.
#pragma once
#include "app/run/data_sources.h"
#include "app/run/session.h"

namespace spillway::app {

/// Throws Error(refused) if the filesystem of --out has no room for the checkpoints that --keep asks for.
void check_disk(const TrainConfig& config, const Session& session);
/// Throws Error(usage) if the model folder has no weights and new ones were not requested explicitly.
void check_weights(const TrainConfig& config, const ModelSource& source);
/// If rows of padding will fill up steps or validations of a model with inputs of its own, evaluates such rows. Throws Error(usage) if they
/// add to the loss. All ranks call it together.
void check_padding(Session& session, const TrainConfig& config, const RunData& data);

}  // namespace spillway::app
