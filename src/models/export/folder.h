// Writes a model's weights and config.json as a Hugging Face folder, streamed from another such folder (a checkpoint): a MiB of memory for
// each thread of the stream in force, however large the model. Equal weights give equal bytes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/export/plain_model.h"

namespace spillway::models {

struct ExportResult {
  i64 tensors = 0, files = 0;
};

/// `dtype`: "fp32", "fp64", "bf16", "fp16" (rounded to nearest even), empty: as stored. One file, or shards of at most `max_shard_bytes`
/// with an index. Errors: Error(usage) on another dtype; Error(data) when the model's folder does not hold it; Error(io).
ExportResult export_folder(const PlainModel& model, const std::filesystem::path& to, const std::optional<std::string>& dtype,
                           i64 max_shard_bytes);

/// The adapters alone, as a PEFT folder that names `base`; `averages` as PlainModel has them.
ExportResult export_adapter(const ModelConfig& config, const std::filesystem::path& adapter, const std::string& base,
                            const std::filesystem::path& to, const std::optional<std::string>& dtype,
                            const std::optional<std::filesystem::path>& averages = {});

}  // namespace spillway::models
