// The network of PyTorch's tutorial "Training a Classifier", for images of any size and number of classes (the tutorial's are 3 x 32 x 32
// and ten), as two blocks that may lie on two pipeline stages: ConvPart (two 5x5 convolutions with pooling; reads
// MicroBatch::images_NCHW, gives [N, 16 h w], 400 of 32 x 32) and MlpPart (three linear layers and the loss; Mode::generate: logits [N,
// classes]). Parameter names are the tutorial's. It is LeNet-5 (LeCun et al. 1998) with ReLU and maxima, which the family lenet has with
// its first convolution padded by 2, as for MNIST, and in any widths.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// Of which something is left behind both poolings.
constexpr i64 kLeastCifarNetSide = 16, kLeastLenetSide = 12;

/// Of either family.
nn::Sequential build_cifar_net(const ModelConfig& config, DType dtype);

}  // namespace spillway::models
