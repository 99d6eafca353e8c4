// Turns --optimizer and the flags of its hyperparameters into the settings of an update rule. Pure functions.
#pragma once
#include "optim/rules/settings.h"
#include "trainer/settings/config.h"
#include "trainer/settings/optimizer_groups.h"

namespace spillway::trainer {

/// Returns the settings of the update rule. Where a flag is not given, the rule's default is used: PyTorch's, except that lion has its
/// paper's defaults and adamw has ours.
optim::RuleSettings update_settings(const TrainConfig& config);

/// Parses the values of --optimizer-group.
std::vector<OptimizerGroup> update_groups(const TrainConfig& config);

/// Fills in the default of every flag that the rule has, so that the run's config.json shows it. Throws Error(usage) for a flag that the
/// rule does not have, for --nesterov without momentum or with dampening, and for an --optimizer-group that does not parse.
void resolve_update_rule(TrainConfig& config);

}  // namespace spillway::trainer
