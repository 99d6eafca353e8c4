// --optimizer-group "REGEX:key=value,…": learning rate and weight decay of parameters by name. Values and pure functions.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::app {

struct OptimizerGroup {
  std::string pattern;
  std::optional<double> learning_rate;  // in place of --learning-rate, on the same schedule; empty: that
  std::optional<double> weight_decay;   // of all its parameters; empty: as without the group
};

/// The last colon stands between pattern and settings. Error(usage) for what is neither.
OptimizerGroup parse_optimizer_group(const std::string& text);

/// By name the first group whose pattern is found in it, counted from 1; 0: none. Error(usage) for a group that gets none of them, or none
/// but those of running statistics (`statistic`, by name), which no rule moves.
std::vector<u16> groups_of_names(std::span<const OptimizerGroup> groups, std::span<const std::string> names,
                                 const std::vector<bool>& statistic = {});

}  // namespace spillway::app
