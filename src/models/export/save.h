// Saves the weights of a model that is in memory.
#pragma once
#include <filesystem>

#include "nn/module.h"

namespace spillway::models {

/// Writes every parameter unchanged into `folder`/model.safetensors, completely or not at all, with the names and shapes of Hugging Face
/// folders (first_place()): parameters that such folders store as parts of a larger tensor are joined. FolderWeights can read that file.
/// All parameters must be resident (nn::EagerParameters). For parameters on a GPU the current stream must belong to that GPU. Throws
/// Error(io), and Error(usage) on quantized parameters.
void save(const nn::Sequential& model, const std::filesystem::path& folder);

}  // namespace spillway::models
