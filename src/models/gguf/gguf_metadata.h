// Writes the part of a GGUF file that describes the model: configuration and tokenizer.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_file.h"

namespace spillway::models {

/// Adds the configuration of a model that gguf_architecture() accepts. Appends to `notes` sentences about what llama.cpp will ignore.
void add_gguf_config(const ModelConfig& config, const std::string& name, GgufType weights, GgufMetadata& metadata,
                     std::vector<std::string>& notes);

/// Where the tokenizer comes from: a model folder, 256 tokens that stand for the byte values (`bytes`), or nowhere if there is no
/// tokenizer.
struct GgufTokenizer {
  std::optional<std::filesystem::path> folder;
  bool bytes = false;
  std::vector<i64> more_ends = {};  // further tokens that end a text, besides those of config.json
};
/// Adds the tokenizer. Appends to `notes` sentences about what llama.cpp will do differently.
/// Throws Error(data) if files cannot be read or the tokenizer has more tokens than the model.
void add_gguf_tokenizer(const ModelConfig& config, const GgufTokenizer& tokenizer, GgufMetadata& metadata, std::vector<std::string>& notes);

}  // namespace spillway::models
