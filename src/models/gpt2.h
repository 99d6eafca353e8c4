// GPT-2 (Radford et al. 2019), equivalent to Hugging Face's GPT2LMHeadModel: learned
// positions, pre-norm, projections stored [in, out]. Only model.cc uses this header.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

nn::Sequential build_gpt2(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
