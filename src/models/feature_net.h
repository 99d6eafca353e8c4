// AlexNet ("one weird trick", Krizhevsky, arXiv:1404.5997) and the VGG of 11 layers (Simonyan and Zisserman, arXiv:1409.1556) with
// torchvision's layers and parameter names. There is a block for each convolution with the layers that follow it, and one for each linear
// layer. The first block reads MicroBatch::images_NCHW; the block of the last convolution ends with the pooling to a fixed image size. The
// block of the last linear layer returns the loss, or in Mode::generate the logits [N, classes]. The dropout rate (torchvision's is 0.5) is
// ModelConfig::residual_dropout.
#pragma once
#include <array>
#include <vector>

#include "models/config.h"
#include "models/image_parts.h"

namespace spillway::models {

/// The smallest image sides, in pixels, for which all poolings leave at least one pixel.
constexpr i64 kLeastAlexnetSide = 63, kLeastVgg11Side = 32;

/// The differences between AlexNet and VGG. Module numbers are those of
/// torchvision's Sequentials, which also count activations, poolings and dropouts.
struct FeatureForm {
  struct Convolution {
    ConvShape shape;
    bool pooled = false;
  };
  std::vector<Convolution> convolutions;  // the layers "features.N"; N grows by 2, or by 3 after a pooled convolution
  i64 pool_kernel, extent;                // the kernel of the max poolings, whose stride is 2; the side in pixels of the classifier's input
  // pool_kernel: the kernel size of the max poolings, whose stride is 2; extent: the side of the classifier's input in pixels
  bool drops_first;
  std::array<int, 3> linear_numbers;  // the numbers N in the linear layers' names "classifier.N"
};
FeatureForm feature_form(Family family);

/// Builds a model of the family alexnet or vgg11.
nn::Sequential build_feature_net(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
