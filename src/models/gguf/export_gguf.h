// Writes a language model as one GGUF file, which llama.cpp and what is built on it read: weights, what config.json says, the tokenizer.
// Streamed; equal weights give equal bytes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/export/plain_model.h"
#include "models/gguf/gguf_metadata.h"

namespace spillway::models {

struct GgufExport {
  i64 tensors = 0;
  std::vector<std::string> notes;  // what llama.cpp will not have of the model, in words for the user
};

/// `dtype`: "fp32", "fp16", "bf16", "q8_0"; empty: bf16 of what is stored so, else fp16. Tensors of one dimension, gains and routers are
/// fp32. Errors: Error(usage) on another dtype, or a model that
/// llama.cpp has not or not with these numbers; Error(data) on numbers that the type does not hold, or from the folders; Error(io).
GgufExport export_gguf(const PlainModel& model, const std::string& name, const GgufTokenizer& tokenizer, const std::filesystem::path& file,
                       const std::optional<std::string>& dtype);

}  // namespace spillway::models
