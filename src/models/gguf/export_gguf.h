// Writes a language model as one GGUF file for llama.cpp and programs based on it: weights, configuration and tokenizer. The file is
// streamed; equal weights give equal bytes.
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
  std::vector<std::string> notes;  // sentences for the user about what llama.cpp does differently
};

/// Exports the model to `file`. `dtype` is "fp32", "fp16", "bf16" or "q8_0"; without it, tensors stored as
/// bf16 stay bf16 and others become fp16. Tensors of one dimension, gains and routers are always fp32. Throws
/// Error(usage) on another dtype or on a model that llama.cpp does not support or would compute differently.
/// Throws Error(data) on numbers that the type cannot hold or on errors of the folders. Throws Error(io).
GgufExport export_gguf(const PlainModel& model, const std::string& name, const GgufTokenizer& tokenizer, const std::filesystem::path& file,
                       const std::optional<std::string>& dtype);

}  // namespace spillway::models
