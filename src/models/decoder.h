// Decoders with rotary positions, grouped-query attention and gated MLPs or mixtures of experts, equivalent to Hugging Face's …ForCausalLM
// of each family in models/families, whose files name the papers. Projections are stored [out, in]. Only model.cc uses this header.
#pragma once
#include "models/families/model_config.h"
#include "nn/module.h"

namespace spillway::models {

nn::Sequential build_decoder(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
