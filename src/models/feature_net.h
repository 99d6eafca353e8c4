// AlexNet ("one weird trick", Krizhevsky, arXiv:1404.5997) and VGG of 11 layers (Simonyan and Zisserman, arXiv:1409.1556) with
// torchvision's layers and parameter names: a block for each convolution with what follows it (the first reads MicroBatch::images_NCHW),
// the last of them with the pooling to a fixed extent, and one for each linear layer; the last ends with the loss (Mode::generate: logits
// [N, classes]). Dropout, torchvision's 0.5, is ModelConfig::residual_dropout.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// Of which something is left behind all poolings.
constexpr i64 kLeastAlexnetSide = 63, kLeastVgg11Side = 32;

/// Of these two families.
nn::Sequential build_feature_net(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
