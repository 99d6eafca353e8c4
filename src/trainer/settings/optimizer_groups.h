// Parses the parameter groups of --optimizer-group "REGEX:key=value,…", which set the learning
// rate and weight decay of parameters by name. All types are values, all functions pure.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

struct OptimizerGroup {
  std::string pattern;
  std::optional<double> learning_rate;  // replaces --learning-rate and follows the same schedule; empty: --learning-rate applies
  // replaces the weight decay of all parameters of the group; empty: weight decay as without the group
  std::optional<double> weight_decay;
};

/// Parses one value of --optimizer-group. The last colon separates the pattern from the settings. Throws Error(usage) for a text without
/// these parts, an invalid pattern or a negative number.
OptimizerGroup parse_optimizer_group(const std::string& text);

/// Returns one number for each parameter name: the index, counted from 1, of the first group whose pattern is found in the name, or 0 if no
/// group has such a pattern. `statistic` says which names are batch-norm running statistics, which no update rule changes. Throws
/// Error(usage) if a group is the first match of no name, or only of running statistics.
std::vector<u16> groups_of_names(std::span<const OptimizerGroup> groups, std::span<const std::string> names,
                                 const std::vector<bool>& statistic = {});

}  // namespace spillway::trainer
