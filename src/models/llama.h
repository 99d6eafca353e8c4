// Llama (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783) as Hugging Face's LlamaForCausalLM: rotary positions,
// RMS norms, grouped-query attention, SwiGLU, projections stored [out, in]. For model.cc and its tests.
#pragma once
#include <vector>

#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

nn::Sequential build_llama(const ModelConfig& config, DType dtype);

/// head_dim / 2 rotary frequencies in radians a position, rope_scaling applied.
std::vector<double> rope_inverse_frequencies(const ModelConfig& config);

}  // namespace spillway::models
