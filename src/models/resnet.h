// Residual networks of basic blocks (He et al., arXiv:1512.03385) with torchvision's parameter names: a block for the stem (reads
// MicroBatch::images_NCHW), one for each residual block, one for the head (mean over the image, linear layer, loss; Mode::generate: logits
// [N, classes]). Any image extent the strides leave something of.
#pragma once
#include <vector>

#include "nn/module.h"

namespace spillway::models {

struct ResNetConfig {
  std::vector<i64> widths;  // of the stages; each but the first halves the image
  i64 blocks = 1;           // of a stage
  i64 classes = 10;
  bool large_stem = false;  // 7x7 of stride 2 and pooling, for photographs; else 3x3, for CIFAR
};

/// CIFAR's 20 layers (section 4.2 of the paper, but with a convolution in the shortcuts that change shape), and ImageNet's 18.
ResNetConfig resnet20();
ResNetConfig resnet18();

nn::Sequential build_resnet(const ResNetConfig& config, DType dtype);

}  // namespace spillway::models
