// Turns --optimizer and the flags of its hyperparameters into the settings of an update rule. All functions are pure.
#pragma once
#include "optim/rules/settings.h"
#include "trainer/settings/config.h"
#include "trainer/settings/optimizer_groups.h"

namespace spillway::trainer {

/// Returns the settings of the update rule. A flag that is not given has the rule's
/// default, which is PyTorch's, except for lion (its paper's) and adamw (Spillway's own).
optim::RuleSettings update_settings(const TrainConfig& config);

/// Parses the values of --optimizer-group into groups.
std::vector<OptimizerGroup> update_groups(const TrainConfig& config);

/// Fills in the default of every unset flag that the update rule has, so that the run's config.json shows it. Throws Error(usage) for a
/// flag that the rule does not have, for --nesterov without momentum or with dampening, and for an --optimizer-group that does not parse.
void resolve_update_rule(TrainConfig& config);

}  // namespace spillway::trainer
