// Determines the model that a file of weights from another program belongs to. A file of llm.c names the model
// in its header. For torchvision's state dicts the caller names the model, and the shapes of the first and
// last layer give the numbers of channels and classes. PlainModel reads the weights from the imported file.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/config.h"

namespace spillway::models {

struct ImportedModel {
  ModelConfig config;
  std::string kind;  // description for the user, such as "llm.c's GPT-2"
};

/// Returns the model of `file`. `as` names one of torchvision's models and must be absent for a file of llm.c. Throws Error(usage) if there
/// is no such model or the name is missing. Throws Error(data) if the file is of neither kind, is damaged or lacks the model's layers.
ImportedModel imported_model(const std::filesystem::path& file, const std::optional<std::string>& as);

}  // namespace spillway::models
