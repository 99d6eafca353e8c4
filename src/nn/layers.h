// Small layers that blocks are made of: each holds its parameters, lists them in the order it reads them, and computes through ops/. Not
// Modules themselves. Names are Hugging Face's: `name` is the layer's, the parameter adds ".weight" or ".bias". Immutable: thread-safe.
// Legend: V = rows of a table, C = channels, I = inputs, O = outputs.
#pragma once
#include "nn/module.h"
#include "ops/linear.h"

namespace spillway::nn {

using ParameterList = std::vector<ParameterUse>;

/// What the layers list, in order: a block's parameters().
template <class... Layers>
ParameterList listed(const Layers&... layers) {
  ParameterList parameters;
  (layers.list(parameters), ...);
  return parameters;
}

/// What is added to a layer of products by two thin ones (Hu et al., arXiv:2106.09685): scale * dropped(x) A^T B^T with A[rank, I], drawn
/// as PyTorch draws a layer's weight, and B[O, rank], zero at first.
struct Lora {
  i64 rank = 0;  // 0: nothing
  double scale = 1, dropout = 0;
};

/// Drops a share of x[B, ...] in Mode::train; x itself otherwise. `name` tells its mask from those of other places.
class Dropout {
 public:
  Dropout(std::string name, double share) : name_(std::move(name)), share_(share) {}
  Variable operator()(const Variable& x, const Context& context) const;
  /// The share in force: 0 but in Mode::train.
  double share(const Context& context) const { return context.mode == Mode::train ? share_ : 0; }
  RandomKey key(const Context& context) const { return context.random.derive("dropout").derive(name_); }

 private:
  std::string name_;
  double share_;
};

/// y[..., O] = (residual +) x[..., I] w (+ b), and what `lora` adds.
class Linear {
 public:
  struct Options {
    bool bias = true;  // starts at zero
    ops::WeightLayout layout = ops::WeightLayout::out_in;
    double std = 0.02;     // of the initial weights
    bool uniform = false;  // instead: weight and bias as PyTorch draws them by default (uniform_by_inputs)
    Lora lora;             // parameters "<name>.lora_A.weight" and "<name>.lora_B.weight"
    kernels::WeightFormat format = kernels::WeightFormat::plain;  // of the weight
    bool to_classes = false;                                      // its outputs are of classes, not features
  };
  Linear(const std::string& name, i64 inputs, i64 outputs, DType dtype, const Options& options);
  Variable operator()(const Variable& x, const Context& context, const Variable& residual = {}) const;
  void list(ParameterList& parameters) const;
  /// Of the product alone.
  ops::LinearWeights weights(const Context& context) const;
  bool has_lora() const { return a_ != nullptr; }
  bool is_plain() const { return weight_->is_plain(); }

 private:
  std::shared_ptr<Parameter> weight_, bias_, a_, b_;  // null: none
  ops::WeightLayout layout_;
  double lora_scale_;
  Dropout lora_dropout_;
};

/// ids -> rows of weight[V, C]. Its weight may be shared with a head, whose use is then 1. `padding_row` (-1: none) gets no gradient from
/// this use, as nn.Embedding's padding_idx in PyTorch.
class Embedding {
 public:
  Embedding(const std::string& name, i64 rows, i64 channels, DType dtype, double std, i64 padding_row = -1);
  Variable operator()(const Tensor& ids_BT, const Context& context) const;
  void list(ParameterList& parameters) const;
  const std::shared_ptr<Parameter>& weight() const { return weight_; }

 private:
  std::shared_ptr<Parameter> weight_;
  i64 padding_row_;
};

/// Over the last axis, with gain and bias.
class LayerNorm {
 public:
  LayerNorm(const std::string& name, i64 channels, DType dtype, double eps);
  Variable operator()(const Variable& x, const Context& context) const;
  void list(ParameterList& parameters) const;

 private:
  std::shared_ptr<Parameter> weight_, bias_;
  double eps_;
};

/// Over the last axis, with gain: the weight plus `gain_offset`, which starts at 1.
class RmsNorm {
 public:
  RmsNorm(const std::string& name, i64 channels, DType dtype, double eps, double gain_offset = 0);
  Variable operator()(const Variable& x, const Context& context) const;
  void list(ParameterList& parameters) const;

 private:
  std::shared_ptr<Parameter> weight_;
  double eps_, gain_offset_;
};

}  // namespace spillway::nn
