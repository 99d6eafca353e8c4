// Decoders with rotary positions, RMS norms, grouped-query attention and gated MLPs, equivalent to Hugging Face's
// …ForCausalLM of each family: Llama (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783),
// Mistral (arXiv:2310.06825), Qwen2 (arXiv:2407.10671), Qwen3 and its mixtures of experts (arXiv:2505.09388),
// Mixtral (arXiv:2401.04088), Gemma 2 (arXiv:2408.00118), Gemma 3 (arXiv:2503.19786), Phi-3 (arXiv:2404.14219),
// OLMo 2 (arXiv:2501.00656). Projections are stored [out, in]. Only model.cc uses this header.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

nn::Sequential build_decoder(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
