// Small layers from which blocks are built. Each layer holds its parameters, lists them in the order in which it reads them, and
// computes through ops/. Layers are not Modules. Names are Hugging Face's: `name` is the layer's, and parameters append ".weight"
// or ".bias". Layers are immutable and thread-safe. Shape letters: V = rows of a table, C = channels, I = inputs, O = outputs.
#pragma once
#include "nn/module.h"
#include "ops/products/linear.h"

namespace spillway::nn {

using ParameterList = std::vector<ParameterUse>;

/// Returns the parameters of the given layers in order, as a block's parameters() needs them.
template <class... Layers>
ParameterList listed(const Layers&... layers) {
  ParameterList parameters;
  (layers.list(parameters), ...);
  return parameters;
}

/// A low-rank adapter (LoRA; Hu et al., arXiv:2106.09685). It adds scale * dropped(x) A^T B^T to the output of a linear layer. A[rank, I]
/// is initialised like a weight of PyTorch's Linear, B[O, rank] with zeros.
struct Lora {
  i64 rank = 0;  // the rank of the adapter; 0 means no adapter
  double scale = 1, dropout = 0;
};

/// Applies dropout (ops/elementwise/dropout.h) with probability `share` to x[B, ...] in Mode::train; in other modes returns x itself. The
/// random key includes `name`, so that each layer has a different mask.
class Dropout {
 public:
  Dropout(std::string name, double share) : name_(std::move(name)), share_(share) {}
  Variable operator()(const Variable& x, const Context& context) const;
  /// Returns the fraction that is dropped: 0 except in Mode::train.
  double share(const Context& context) const { return context.mode == Mode::train ? share_ : 0; }
  RandomKey key(const Context& context) const { return context.random.derive("dropout").derive(name_); }

 private:
  std::string name_;
  double share_;
};

/// A linear layer: y[..., O] = (residual +) x[..., I] w (+ b), plus the output of the adapter `lora`.
class Linear {
 public:
  struct Options {
    bool bias = true;  // whether there is a bias, which starts at zero
    ops::WeightLayout layout = ops::WeightLayout::out_in;
    double std = 0.02;     // the standard deviation of the initial weights
    bool uniform = false;  // whether weight and bias are initialised as PyTorch does by default (uniform_by_inputs), not by std
    Lora lora;             // the adapter, with parameters "<name>.lora_A.weight" and "<name>.lora_B.weight"
    kernels::WeightFormat format = kernels::WeightFormat::plain;  // the storage format of the weight
    bool to_classes = false;                                      // whether each output is a class or token, not a feature
    bool fp8 = false;                                             // whether products use fp8 (ops/products/linear.h), except an adapter's
    std::vector<StoredPart> weight_stored, bias_stored;           // Parameter::stored of the weight and of the bias
  };
  Linear(const std::string& name, i64 inputs, i64 outputs, DType dtype, const Options& options);
  Variable operator()(const Variable& x, const Context& context, const Variable& residual = {}) const;
  void list(ParameterList& parameters) const;
  /// Returns the weight and bias without the adapter.
  ops::LinearWeights weights(const Context& context) const;
  bool has_lora() const { return a_ != nullptr; }
  /// Returns whether the weight is stored, and multiplied, as plain values.
  bool is_plain() const { return weight_->is_plain() && !fp8_; }

 private:
  std::shared_ptr<Parameter> weight_, bias_, a_, b_;  // a parameter that the layer does not have is null
  ops::WeightLayout layout_;
  bool fp8_;
  double lora_scale_;
  Dropout lora_dropout_;
};

/// An embedding, which looks up rows of weight[V, C] by id. If a head shares the weight, the head's use of the parameter
/// has number 1. `padding_row` (-1: none) gets no gradient from this layer, like padding_idx of PyTorch's nn.Embedding.
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

/// Layer normalization over the last axis, with gain and, if `bias` is set, bias.
class LayerNorm {
 public:
  LayerNorm(const std::string& name, i64 channels, DType dtype, double eps, bool bias = true);
  Variable operator()(const Variable& x, const Context& context) const;
  void list(ParameterList& parameters) const;

 private:
  std::shared_ptr<Parameter> weight_, bias_;  // bias_ is null if there is none
  double eps_;
};

/// RMS normalization over the last axis. The gain is the weight plus `gain_offset`; its initial value is 1.
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
