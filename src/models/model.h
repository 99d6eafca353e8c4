// Builds the blocks of a model from its configuration: one embedding block, one block per layer, one head block (final norm, language-model
// head and loss). Parameters have the names and shapes that save_pretrained of transformers writes. All storages are vacant (without
// memory), on the device of the current stream, so building a model of any size takes only kilobytes. Blocks pass on x_BTC: [B, T, width].
// The head returns the sum of token losses (an f64 scalar) or, in Mode::generate, the logits [B, V] of Context::logits_position. Dropout
// keys are derived from Context::random by the Hugging Face name of the dropout layer.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// Builds the model that `config` describes. `dtype` (f32, f64, bf16 or f16) is the type of parameters,
/// activations and their gradients. With bf16 and f16, parameter gradients and logits are f32.
nn::Sequential build(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
