#include "models/model.h"

#include "base/error.h"
#include "models/cifar_net.h"
#include "models/decoder.h"
#include "models/feature_net.h"
#include "models/gpt2.h"
#include "models/resnet.h"

namespace spillway::models {

nn::Sequential build(const ModelConfig& config, DType dtype) {
  if (!is_floating(dtype)) {
    throw Error(ErrorCode::usage, "[models] expected f32, f64, bf16 or f16 parameters, got " + std::string(to_string(dtype)));
  }
  if (config.reads_images()) check_image_side(config);
  switch (config.family) {
    case Family::gpt2:
      return build_gpt2(config, dtype);
    case Family::cifar_net:
    case Family::lenet:
      return build_cifar_net(config, dtype);
    case Family::alexnet:
    case Family::vgg11:
      return build_feature_net(config, dtype);
    case Family::resnet:
      return build_resnet(config.resnet, config.image_CHW, config.vocabulary, dtype);
    default:
      return build_decoder(config, dtype);
  }
}

}  // namespace spillway::models
