// The update rule that --optimizer and the flags beside it name. Pure functions.
#pragma once
#include "app/flags/config.h"
#include "app/flags/optimizer_groups.h"
#include "optim/rules/settings.h"

namespace spillway::app {

/// What the flags say, and where they say nothing the rule's defaults: PyTorch's, the paper's of lion, ours of adamw. Error(usage) on
/// --nesterov without momentum or with dampening.
optim::RuleSettings update_settings(const TrainConfig& config);

/// Of --optimizer-group.
std::vector<OptimizerGroup> update_groups(const TrainConfig& config);

/// Fills in what update_settings takes, so that the run's config.json shows it. Error(usage) on a flag that the rule does not
/// have, and on a group that is none.
void resolve_update_rule(TrainConfig& config);

}  // namespace spillway::app
