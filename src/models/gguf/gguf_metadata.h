// What GGUF says of a model beside its weights.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_file.h"

namespace spillway::models {

/// Of a model that gguf_architecture() knows; `notes` gets what llama.cpp will leave out.
void add_gguf_config(const ModelConfig& config, const std::string& name, GgufType weights, GgufMetadata& metadata,
                     std::vector<std::string>& notes);

/// The folder with a model's tokenizer, or that its 256 tokens are bytes; or neither.
struct GgufTokenizer {
  std::optional<std::filesystem::path> folder;
  bool bytes = false;
  std::vector<i64> more_ends = {};  // tokens that end a text beside those of config.json
};
/// `notes` gets what llama.cpp will do otherwise. Error(data): files that cannot be read, or more tokens than the model has.
void add_gguf_tokenizer(const ModelConfig& config, const GgufTokenizer& tokenizer, GgufMetadata& metadata, std::vector<std::string>& notes);

}  // namespace spillway::models
