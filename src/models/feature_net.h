// AlexNet ("one weird trick", Krizhevsky, arXiv:1404.5997) and VGG of 11 layers (Simonyan and Zisserman, arXiv:1409.1556) with
// torchvision's layers and parameter names: a block for each convolution with what follows it (the first reads MicroBatch::images_NCHW),
// the last of them with the pooling to a fixed extent, and one for each linear layer; the last ends with the loss (Mode::generate: logits
// [N, classes]). Dropout, torchvision's 0.5, is ModelConfig::residual_dropout.
#pragma once
#include <array>
#include <vector>

#include "models/config.h"
#include "models/image_parts.h"

namespace spillway::models {

/// Of which something is left behind all poolings.
constexpr i64 kLeastAlexnetSide = 63, kLeastVgg11Side = 32;

/// What the two differ in. Numbers of modules are those of torchvision's Sequentials, with their activations, poolings and dropouts.
struct FeatureForm {
  struct Convolution {
    ConvShape shape;
    bool pooled = false;
  };
  std::vector<Convolution> convolutions;  // "features.N", N growing by 2, and by 3 behind a pooled one
  i64 pool_kernel, extent;                // of the maxima, of stride 2; of what the classifier reads
  bool drops_first;                       // dropout before each hidden linear layer, else behind it
  std::array<int, 3> linear_numbers;      // "classifier.N"
};
FeatureForm feature_form(Family family);

/// Of these two families.
nn::Sequential build_feature_net(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
