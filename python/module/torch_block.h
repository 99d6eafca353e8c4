// A block of a model whose forward and backward PyTorch computes. The Python side (spillway/torch/_skeleton.py) holds the modules without
// weights; for each call it gets views of the run's memory: of the block's input, of its weights where the run has put them, and of where
// the output or the gradients go. PyTorch's own memory is measured before the first step and counted by the plan (ForeignMemory).
//
// Blocks hand on tuples of tensors. A tuple of one floating-point tensor is that tensor; any other tuple is packed
// into the bytes [B, n] of one tensor of bytes, whose gradient has the same places.
#pragma once
#include <memory>
#include <vector>

#include "nn/module.h"
#include "python/module/own_model.h"

namespace spillway::python {

class TorchBlock final : public nn::Module {
 public:
  /// `skeleton` is the Python object that computes; it must outlive the block, and is touched only under the GIL. `parameters` are in the
  /// order in which the skeleton expects the weights.
  TorchBlock(std::shared_ptr<const OwnModel> model, nb::handle skeleton, size_t index, std::vector<nn::ParameterUse> parameters,
             Raised& raised)
      : model_(std::move(model)), skeleton_(skeleton), index_(index), parameters_(std::move(parameters)), raised_(raised) {}

  Variable forward(const Variable& x, const nn::Context& context) const override;
  std::vector<nn::ParameterUse> parameters() const override { return parameters_; }

 private:
  Variable measured(const std::vector<Variable>& read, const nn::Context& context) const;
  Variable computed(const std::vector<Variable>& read, const nn::Context& context) const;
  bool is_last() const { return index_ + 1 == model_->blocks.size(); }
  std::string where(const char* what) const { return std::string("[") + what + "] block `" + model_->blocks[index_].name + "`"; }

  const std::shared_ptr<const OwnModel> model_;
  const nb::handle skeleton_;
  const size_t index_;
  const std::vector<nn::ParameterUse> parameters_;
  Raised& raised_;
};

/// Returns the parameter that `spec` describes, the tuple (shape, trained, rows belong to ids, values, statistic). values(begin, count)
/// must return the initial values of a range of elements, counted in row-major order, as an f64 array. A statistic is a buffer that a
/// forward in training changes, such as batch norm's running mean (nn::Parameter::statistic).
NamedParameter torch_parameter(const std::string& name, const nb::tuple& spec);
/// Returns the function that reads the initial values of a parameter with torch_parameter()'s `values`.
std::function<void(i64 begin, std::span<double> out)> torch_values(const std::string& name, nb::handle values, Raised& raised);

/// Returns the function that limits PyTorch's memory on a GPU to what the plan leaves to it (nn::Sequential::limit_foreign_memory). On the
/// CPU it does nothing.
std::function<void(Device device, i64 bytes)> torch_limit(nb::handle skeleton, Raised& raised);

}  // namespace spillway::python
