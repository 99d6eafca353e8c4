// Residual networks (He et al., arXiv:1512.03385) with torchvision's layers, parameter names and initial values. There is a module for the
// stem, which reads MicroBatch::images_NCHW, one for each residual block, and one for the head: mean over the image, linear layer and loss.
// In Mode::generate the head returns the logits [N, classes]. Bottlenecks halve the image in their 3x3 convolution ("v1.5"). Images may
// have any size.
#pragma once
#include "models/config.h"
#include "nn/module.h"

namespace spillway::models {

/// resnet20() returns the network with 20 layers for CIFAR (section 4.2 of the paper, except that a shortcut which
/// changes the shape has a convolution). The other functions return the networks with 18, 34 and 50 layers for ImageNet.
ResNetConfig resnet20();
ResNetConfig resnet18();
ResNetConfig resnet34();
ResNetConfig resnet50();

nn::Sequential build_resnet(const ResNetConfig& config, const Shape& image_CHW, i64 classes, DType dtype);

}  // namespace spillway::models
