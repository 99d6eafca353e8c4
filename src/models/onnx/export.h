// Writes a model as an ONNX graph, model.onnx and model.onnx.data, for onnxruntime and programs based on it. Equal weights give equal
// bytes.
#pragma once
#include "models/export/folder.h"

namespace spillway::models {

/// Exports the model to folder `to`, with its config.json. The graph of a language model takes input_ids, attention_mask,
/// position_ids and a key/value cache (with zero positions at first) and returns the logits of all positions and the extended cache,
/// with names and shapes as in transformers' exporters. The graph of an image model takes pixel_values and returns logits. Batch
/// size and lengths may differ between calls. `dtype` is "fp32" or "fp16"; the default is fp16 if the weights are stored as fp16,
/// and fp32 otherwise. Norms, softmax and logits are always fp32. Throws Error(usage) on another dtype, Error(data) and Error(io).
ExportResult export_onnx(const PlainModel& model, const std::filesystem::path& to, const std::optional<std::string>& dtype);

}  // namespace spillway::models
