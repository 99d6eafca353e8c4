// The network of PyTorch's tutorial "Training a Classifier", for images of any size and any number of classes (the tutorial has 3 x
// 32 x 32 and ten). The network has two blocks, which may lie on two pipeline stages. ConvPart reads MicroBatch::images_NCHW and
// has two 5x5 convolutions with pooling; its output is [N, 16 h w], 400 features for 32 x 32. MlpPart has three linear layers and
// returns the loss, or in Mode::generate the logits [N, classes]. Parameter names are the tutorial's. The network is LeNet-5 (LeCun
// et al. 1998) with ReLU and max pooling. The family lenet pads its first convolution by 2, as for MNIST, and allows any widths.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// The smallest image sides, in pixels, for which both poolings leave at least one pixel.
constexpr i64 kLeastCifarNetSide = 16, kLeastLenetSide = 12;

/// Builds a model of the family cifar_net or lenet.
nn::Sequential build_cifar_net(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
