// The network of PyTorch's tutorial "Training a Classifier", for 32x32 images of three channels and ten classes, as two blocks that may
// lie on two pipeline stages: ConvPart (two convolutions with pooling; reads MicroBatch::images_NCHW, gives [N, 400]) and MlpPart (three
// linear layers and the loss; Mode::generate: logits [N, 10]). Parameter names are the tutorial's.
#pragma once
#include "nn/module.h"

namespace spillway::models {

nn::Sequential build_cifar_net(DType dtype);

}  // namespace spillway::models
