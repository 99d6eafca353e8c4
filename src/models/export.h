// Writes a model's weights and config.json as a Hugging Face folder, streamed from another such folder (a checkpoint): a few KiB of memory
// however large the model. Equal weights give equal bytes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/config.h"

namespace spillway::models {

struct ExportResult {
  i64 tensors = 0, files = 0;
};

/// `dtype`: "fp32", "fp64", "bf16", "fp16" (rounded to nearest even), empty: as stored. One file, or shards of at most `max_shard_bytes`
/// with an index. `adapter`: a PEFT folder whose adapters, which the config has, are added to the weights. `averages`: a safetensors file
/// whose tensors NAME.ema stand in the place of those parameters (weights.h). Errors: Error(usage) on another dtype; Error(data) when a
/// folder does not hold the model's; Error(io).
ExportResult export_folder(const ModelConfig& config, const std::filesystem::path& from, const std::filesystem::path& to,
                           const std::optional<std::string>& dtype, i64 max_shard_bytes,
                           const std::optional<std::filesystem::path>& adapter = {},
                           const std::optional<std::filesystem::path>& averages = {});

/// The adapters alone, as a PEFT folder that names `base`.
ExportResult export_adapter(const ModelConfig& config, const std::filesystem::path& adapter, const std::string& base,
                            const std::filesystem::path& to, const std::optional<std::string>& dtype,
                            const std::optional<std::filesystem::path>& averages = {});

}  // namespace spillway::models
