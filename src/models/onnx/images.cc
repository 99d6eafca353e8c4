#include "models/feature_net.h"
#include "models/onnx/models.h"
#include "nn/image_layers.h"

// Shape letters: N = images, C = channels, H and W = rows and columns of pixels.
namespace spillway::models::onnx {
namespace {

Value relu(Graph& g, const Value& x) { return g.node("Relu", {x}); }

Value convolution(Graph& g, const Value& x_NCHW, const std::string& name, i64 stride, i64 padding) {
  std::vector<Value> inputs = {x_NCHW, g.weight(name + ".weight")};
  if (g.has_weight(name + ".bias")) inputs.push_back(g.weight(name + ".bias"));
  return g.node("Conv", inputs, {{"strides", std::vector<i64>(2, stride)}, {"pads", std::vector<i64>(4, padding)}});
}

Value convolution_and_norm(Graph& g, const Value& x_NCHW, const std::string& name, const std::string& norm, i64 stride, i64 padding) {
  const auto of_norm = [&](const char* which) { return g.weight(norm + which); };
  return g.node("BatchNormalization",
                {convolution(g, x_NCHW, name, stride, padding), of_norm(".weight"), of_norm(".bias"), of_norm(".running_mean"),
                 of_norm(".running_var")},
                {{"epsilon", nn::BatchNorm2d::kEps}});
}

Value max_pool(Graph& g, const Value& x_NCHW, i64 kernel, i64 stride, i64 padding = 0) {
  return g.node(
      "MaxPool", {x_NCHW},
      {{"kernel_shape", std::vector<i64>(2, kernel)}, {"strides", std::vector<i64>(2, stride)}, {"pads", std::vector<i64>(4, padding)}});
}

Value flattened(Graph& g, const Value& x_NCHW) { return g.node("Flatten", {x_NCHW}); }

// Returns a matrix [from, to]. A row of `from` pixels multiplied by it gives the means of `to` windows, whose limits are those of PyTorch's
// adaptive pooling.
Value averaging(Graph& g, i64 from, i64 to) {
  std::vector<double> shares(static_cast<size_t>(from * to));
  for (i64 window = 0; window < to; ++window) {
    const i64 begin = window * from / to, end = ((window + 1) * from + to - 1) / to;
    for (i64 pixel = begin; pixel < end; ++pixel) shares[static_cast<size_t>(pixel * to + window)] = 1 / static_cast<double>(end - begin);
  }
  return g.numbers_f32(shares, {from, to});
}

// Pools x to [N, C, to, to] by averaging along one axis after the other.
Value averaged(Graph& g, const Value& x_NCHW, const Extent& image, i64 to) {
  if (image.h == to && image.w == to) return x_NCHW;
  const auto turned = [&](const Value& x) { return g.node("Transpose", {x}, {{"perm", std::vector<i64>{0, 1, 3, 2}}}); };
  const Value across = g.node("MatMul", {wide(g, x_NCHW), averaging(g, image.w, to)});
  return narrowed(g, turned(g.node("MatMul", {turned(across), averaging(g, image.h, to)})));
}

Value cifar_net(Graph& g, Value x) {
  const ModelConfig& c = g.config();
  for (const char* name : {"conv1", "conv2"}) {
    const i64 padding = name == std::string("conv1") && c.family == Family::lenet ? 2 : 0;
    x = max_pool(g, relu(g, convolution(g, x, name, 1, padding)), 2, 2);
  }
  x = flattened(g, x);
  for (const char* name : {"fc1", "fc2"}) x = relu(g, linear(g, x, name));
  return linear(g, x, "fc3");
}

Value feature_net(Graph& g, Value x) {
  const ModelConfig& c = g.config();
  const FeatureForm form = feature_form(c.family);
  Extent image{c.image_CHW[1], c.image_CHW[2]};
  int number = 0;
  for (const auto& [shape, pooled] : form.convolutions) {
    x = relu(g, convolution(g, x, "features." + std::to_string(number), shape.stride, shape.padding));
    image = image.behind(shape.kernel, shape.stride, shape.padding);
    number += pooled ? 3 : 2;
    if (!pooled) continue;
    x = max_pool(g, x, form.pool_kernel, 2);
    image = image.behind(form.pool_kernel, 2, 0);
  }
  x = flattened(g, averaged(g, x, image, form.extent));
  const auto name = [&](size_t layer) { return "classifier." + std::to_string(form.linear_numbers[layer]); };
  for (const size_t layer : {0, 1}) x = relu(g, linear(g, x, name(layer)));
  return linear(g, x, name(2));
}

Value residual_block(Graph& g, const Value& x, const std::string& name, bool bottleneck, i64 stride) {
  const std::vector<i64> kernels = bottleneck ? std::vector<i64>{1, 3, 1} : std::vector<i64>{3, 3};
  const size_t strided = bottleneck ? 1 : 0;
  Value y = x;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    if (i > 0) y = relu(g, y);
    y = convolution_and_norm(g, y, name + ".conv" + number, name + ".bn" + number, i == strided ? stride : 1, kernels[i] / 2);
  }
  const std::string shortcut = name + ".downsample.0";
  const bool changes = g.has_weight(shortcut + ".weight");
  return relu(g, g.node("Add", {y, changes ? convolution_and_norm(g, x, shortcut, name + ".downsample.1", stride, 0) : x}));
}

Value resnet(Graph& g, Value x) {
  const ResNetConfig& c = g.config().resnet;
  x = relu(g, convolution_and_norm(g, x, "conv1", "bn1", c.large_stem ? 2 : 1, c.large_stem ? 3 : 1));
  if (c.large_stem) x = max_pool(g, x, 3, 2, 1);
  for (size_t stage = 0; stage < c.widths.size(); ++stage) {
    for (i64 i = 0; i < c.blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      x = residual_block(g, x, name, c.bottleneck, stage > 0 && i == 0 ? 2 : 1);
    }
  }
  return linear(g, flattened(g, g.node("GlobalAveragePool", {x})), "fc");
}

}  // namespace

void add_image_model(Graph& g) {
  const ModelConfig& c = g.config();
  const Shape& image = c.image_CHW;
  g.input("pixel_values", ElementType::f32, {"images", image[0], image[1], image[2]});
  g.output("logits", ElementType::f32, {"images", c.vocabulary});
  const Value x = narrowed(g, "pixel_values");
  const bool residual = c.family == Family::resnet, features = c.family == Family::alexnet || c.family == Family::vgg11;
  g.name(wide(g, residual ? resnet(g, x) : features ? feature_net(g, x) : cifar_net(g, x)), "logits");
}

}  // namespace spillway::models::onnx
