// Which tokens end a generated text, as generation_config.json says. Reads only.
#pragma once
#include <optional>
#include <vector>

#include "app/checkpoints/model_source.h"

namespace spillway::app {

constexpr const char* kGenerationConfigName = "generation_config.json";

/// The file: of adapters, the one beside them, else the one beside their base. Nothing where there is none.
std::optional<std::filesystem::path> generation_config_of(const ModelSource& source);

/// `eos_token_id` of the generation_config.json: as in transformers it stands in the place of config.json's. Nothing where there is no such
/// file, or it names none. Error(data) naming file and key: no whole number or list of such, or one beyond the model's vocabulary.
std::optional<std::vector<i64>> generation_ends(const ModelSource& source);

}  // namespace spillway::app
