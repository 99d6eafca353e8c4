// Reads and writes config.json of image models. Only config*.cc use this header.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "models/families/config_json.h"
#include "models/families/model_config.h"

namespace spillway::models {

/// image_family() returns the family of an image model's `model_type`, and image_types() a list of all such types as text.
std::optional<Family> image_family(std::string_view type);
std::string image_types();
/// Reads an image model's config.json. Throws Error(data).
ModelConfig parse_image_model(Family family, const ConfigObject& object);
/// Returns an image model's config.json.
nlohmann::json image_model_json(const ModelConfig& config);

}  // namespace spillway::models
