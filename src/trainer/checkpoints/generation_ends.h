// Reads the tokens that end a generated text from a model's generation_config.json.
#pragma once
#include <optional>
#include <vector>

#include "trainer/checkpoints/model_source.h"

namespace spillway::trainer {

constexpr const char* kGenerationConfigName = "generation_config.json";

/// Returns the path of the model's generation_config.json. The adapter's folder is
/// searched first, then the model's folder. Returns nothing if neither has the file.
std::optional<std::filesystem::path> generation_config_of(const ModelSource& source);

/// Returns the `eos_token_id` of generation_config.json, which replaces that of config.json, as in
/// transformers. Returns nothing if there is no such file or the file names no token. Throws Error(data),
/// which names file and key, if the value is not a token of the model's vocabulary or a list of such tokens.
std::optional<std::vector<i64>> generation_ends(const ModelSource& source);

}  // namespace spillway::trainer
