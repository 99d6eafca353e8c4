// What an eager optimizer refuses before it moves anything. Values; thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "nn/parameter.h"
#include "optim/rules/settings.h"

namespace spillway::eager {

/// Throws Error(usage) on a setting that is not finite or outside of what PyTorch takes: a learning rate or weight decay below 0, a beta
/// outside of [0, 1).
void check_settings(const optim::RuleSettings& settings);
/// Likewise on a learning rate alone.
void check_learning_rate(double rate);
/// Throws Error(usage) if a parameter is there twice: a step would move it twice.
void check_once(const std::vector<std::shared_ptr<nn::Parameter>>& parameters);

}  // namespace spillway::eager
