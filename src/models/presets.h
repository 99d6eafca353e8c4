// Models by name, with their published shapes; new weights, dropout 0.
#pragma once
#include <span>
#include <string_view>

#include "models/config.h"

namespace spillway::models {

/// Also true for presets whose family is not built yet; preset() then says so.
bool is_preset(std::string_view name);
/// Those for images have CIFAR-10's shape and classes until they are given others.
/// Throws Error(usage) on an unknown name (names the known ones and the nearest) and on a family that is not built yet.
ModelConfig preset(std::string_view name);
/// Those preset() returns.
std::span<const std::string_view> preset_names();

}  // namespace spillway::models
