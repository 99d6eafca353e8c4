// What a file of weights that others made is a model of. Of llm.c's its header says it; of torchvision's state dicts who asks, and the
// shapes of the first and last layer. PlainModel reads the weights out of the same file.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/config.h"

namespace spillway::models {

struct ImportedModel {
  ModelConfig config;
  std::string kind;  // "llm.c's GPT-2", for the user
};

/// `as`: which of torchvision's models, and not of llm.c's. Error(usage): there is no such model, or one is not said; Error(data): the file
/// is of neither kind, damaged, or has no such layers.
ImportedModel imported_model(const std::filesystem::path& file, const std::optional<std::string>& as);

}  // namespace spillway::models
