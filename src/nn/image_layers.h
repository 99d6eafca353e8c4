// Layers of image models. As in layers.h, each layer holds its parameters, lists them in the order in which
// it reads them, and computes through ops/. Names and initial values are PyTorch's. Images are [N, C, H, W].
#pragma once
#include "nn/layers.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"

namespace spillway::nn {

using ops::Pair;

/// A 2-D convolution. Weight and bias are initialised uniformly in [-b, b] with b = 1/sqrt(inputs / groups * kh * kw), where kh x kw is the
/// kernel, unless Options say otherwise.
class Conv2d {
 public:
  struct Options {
    Pair stride = 1, padding = 0, dilation = 1;
    i64 groups = 1;
    bool bias = true;
    double std = 0;     // above 0: the standard deviation of a normal distribution from which the weight is drawn; the bias is then 0
    i64 positions = 1;  // the number of output pixels (Parameter::positions)
  };
  Conv2d(const std::string& name, i64 inputs, i64 outputs, Pair kernel, DType dtype, const Options& options);
  Variable operator()(const Variable& x, const Context& context) const;
  void list(ParameterList& parameters) const;

 private:
  std::shared_ptr<Parameter> weight_, bias_;  // bias_ is null if there is none
  ops::ConvOptions options_;
};

/// Batch normalization. In Mode::train it normalizes by the statistics of the micro-batch,
/// and the running statistics (Parameter::statistic) move towards these. In other modes,
/// or if the running statistics are frozen, it normalizes by the running statistics.
class BatchNorm2d {
 public:
  static constexpr double kEps = 1e-5;
  BatchNorm2d(const std::string& name, i64 channels, DType dtype, double eps = kEps);
  Variable operator()(const Variable& x, const Context& context) const;
  void list(ParameterList& parameters) const;

 private:
  std::shared_ptr<Parameter> weight_, bias_, running_mean_, running_variance_;
  double eps_;
};

struct MaxPool2d {
  Pair kernel, stride, padding = 0;
  Variable operator()(const Variable& x, const Context&) const { return ops::max_pool2d(x, kernel, stride, padding); }
};

struct AvgPool2d {
  Pair kernel, stride, padding = 0;
  Variable operator()(const Variable& x, const Context&) const { return ops::avg_pool2d(x, kernel, stride, padding); }
};

struct AdaptiveAvgPool2d {
  Pair size;
  Variable operator()(const Variable& x, const Context&) const { return ops::adaptive_avg_pool2d(x, size); }
};

/// Reshapes images [N, C, H, W] to rows [N, C H W].
Variable flatten(const Variable& x);

}  // namespace spillway::nn
