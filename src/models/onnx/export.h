// Writes a model as an ONNX graph, model.onnx and model.onnx.data, for onnxruntime and what is built on it. Equal weights give equal bytes.
#pragma once
#include "models/export/folder.h"

namespace spillway::models {

/// Of a language model: from input_ids, attention_mask, position_ids and a key/value cache (of zero positions at first) to logits of all
/// positions and the cache with them, the names and shapes being those of transformers' exporters; of an image model: from pixel_values to
/// logits. Batch and lengths are those of each call. `dtype`: "fp32" or "fp16", empty: fp16 where the weights are stored so, else fp32;
/// norms, softmax and logits are fp32 always. Beside them config.json. Throws Error(usage) on another dtype; Error(data), Error(io).
ExportResult export_onnx(const PlainModel& model, const std::filesystem::path& to, const std::optional<std::string>& dtype);

}  // namespace spillway::models
