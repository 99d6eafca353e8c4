// Named model configurations with their published shapes, for training from new weights, with dropout 0.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"

namespace spillway::models {

/// Returns whether preset() knows the name.
bool is_preset(std::string_view name);
/// Returns the configuration of that name. Image models have the shape and classes of their original data set until the
/// caller sets others. On an unknown name, throws an Error(usage) that lists the known ones and suggests the nearest.
ModelConfig preset(std::string_view name);
/// Returns the presets that `name` probably means, at most four: for "gpt2", the Hugging Face Hub's name of that size, gpt2-124m.
std::vector<std::string> nearest_presets(std::string_view name);
/// Returns the names that preset() knows.
std::span<const std::string_view> preset_names();

}  // namespace spillway::models
