// From a configuration to blocks: one embedding block, one block a layer, one head block (final norm, language-model head and loss). The
// parameters' names and shapes are those save_pretrained of transformers writes; all storages are vacant, on the device of the stream in
// force, so a model of any size is built in kilobytes.
// Blocks exchange x_BTC: [B, T, width]. The head returns the sum of token losses (f64 scalar), or in Mode::generate logits [B, V] of
// Context::logits_position. Dropout keys derive from Context::random by the Hugging Face name of the dropout's place.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// `dtype`: f32, f64, bf16 or f16, of parameters, activations and their gradients. Of bf16 and f16 the gradients of parameters and the
/// logits are f32.
nn::Sequential build(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
