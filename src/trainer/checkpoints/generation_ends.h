// Reads from a model's generation_config.json which tokens end a generated text.
#pragma once
#include <optional>
#include <vector>

#include "trainer/checkpoints/model_source.h"

namespace spillway::trainer {

constexpr const char* kGenerationConfigName = "generation_config.json";

/// Returns the path of the model's generation_config.json: the file in the adapter's folder if there is one, else the file in the model's
/// folder. Returns nothing if neither exists.
std::optional<std::filesystem::path> generation_config_of(const ModelSource& source);

/// Returns the `eos_token_id` of generation_config.json, which replaces that of config.json, as in transformers. Returns nothing if there
/// is no such file or it names no token. Throws Error(data), which names file and key, if the value is not a token of the model's
/// vocabulary or a list of such tokens.
std::optional<std::vector<i64>> generation_ends(const ModelSource& source);

}  // namespace spillway::trainer
