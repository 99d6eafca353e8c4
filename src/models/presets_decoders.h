// Presets of published decoders other than Llama. Only presets.cc uses this header.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "models/config.h"

namespace spillway::models {

std::optional<ModelConfig> decoder_preset(std::string_view name);
std::span<const std::string_view> decoder_preset_names();

}  // namespace spillway::models
