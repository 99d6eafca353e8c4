// Sources of --data, each with the share of rows that come from it where it is a mixture: PATH or PATH:WEIGHT.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

struct WeightedPaths {
  std::vector<std::string> paths;
  std::vector<double> weights;  // one each, or none at all
};

/// A word of which all is a path that exists has no weight, whatever it holds. Error(usage): a weight that is no number above 0, or weights
/// for some alone.
WeightedPaths weighted_paths(const std::vector<std::string>& words);

}  // namespace spillway::app
