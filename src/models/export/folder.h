// Writes a model's weights and config.json as a Hugging Face folder, streaming from another such folder (a checkpoint). The
// export takes up to 8 MiB of memory for each thread of the current stream, however large the model is. Equal weights give equal bytes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/export/plain_model.h"

namespace spillway::models {

struct ExportResult {
  i64 tensors = 0, files = 0;
};

/// Exports the model to folder `to`. `dtype` is "fp32", "fp64", "bf16" or "fp16" (values are rounded to nearest, ties to
/// even); without it the stored types are kept. Writes one file, or shards of at most `max_shard_bytes` with an index.
/// Throws Error(usage) on another dtype, Error(data) when the model's folder does not hold the model, and Error(io).
/// If the model is the language model of a model of several parts, `whole` is the folder of that model. The export is then a folder of the
/// same kind: its config.json and its other tensors are copied unchanged, and all tensors have the names that they have there. If `dtype`
/// is "mxfp4", the folder is as gpt-oss is published: the weights of experts are rounded to MXFP4 (data/weights/mxfp4.h), or copied byte by
/// byte if the model's folder has them so, and all else is bf16. Throws Error(usage) for models whose folders cannot have experts so.
ExportResult export_folder(const PlainModel& model, const std::filesystem::path& to, const std::optional<std::string>& dtype,
                           i64 max_shard_bytes, const std::optional<std::filesystem::path>& whole = {});

/// Exports the adapters alone, as a PEFT folder that names `base` as its base model. PlainModel (plain_model.h) explains `averages`.
ExportResult export_adapter(const ModelConfig& config, const std::filesystem::path& adapter, const std::string& base,
                            const std::filesystem::path& to, const std::optional<std::string>& dtype,
                            const std::optional<std::filesystem::path>& averages = {});

}  // namespace spillway::models
