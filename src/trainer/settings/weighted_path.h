// Parses the sources of --data, each written PATH or PATH:WEIGHT. In a mixture, the weight is the share of rows that come from the source.
#pragma once
#include <string>
#include <vector>

namespace spillway::trainer {

struct WeightedPaths {
  std::vector<std::string> paths;
  std::vector<double> weights;  // one weight per path, or empty
};

/// Splits each word into path and weight. A word that is itself an existing path has no weight, even if it contains a colon. Throws
/// Error(usage) for a weight that is not a number above 0, or if only some sources have weights.
WeightedPaths weighted_paths(const std::vector<std::string>& words);

}  // namespace spillway::trainer
