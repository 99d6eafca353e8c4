// Checks the arguments of an eager optimizer before it changes anything. Pure functions; thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "nn/parameter.h"
#include "optim/rules/settings.h"

namespace spillway::eager {

/// Throws Error(usage) if a setting is not finite or outside the range that PyTorch accepts, such as a negative learning rate or weight
/// decay, or a beta outside [0, 1).
void check_settings(const optim::RuleSettings& settings);
/// Throws Error(usage) if the learning rate is negative or not finite.
void check_learning_rate(double rate);
/// Throws Error(usage) if a parameter is listed twice, because a step would update it twice.
void check_once(const std::vector<std::shared_ptr<nn::Parameter>>& parameters);

}  // namespace spillway::eager
