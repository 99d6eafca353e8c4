// Optimizers for training without a plan: every update rule of optim, with an interface like PyTorch's:
//   Optimizer optimizer(weights, optim::AdamSettings{.lr = 1e-3, .decoupled_weight_decay = true});
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
// The kernels are those that the trainer runs. f32 and f64 weights are their own master weights, bf16 and f16 weights have fp32 masters,
// and moments are f32 (f64 for f64). As in PyTorch, weight decay applies to every parameter of the optimizer, and a parameter without a
// gradient is skipped. An optimizer is one of PyTorch's parameter groups: for parameters with other settings, make another optimizer.
// Running statistics (of batch norm) are updated with a fixed momentum instead (nn::kStatisticMomentum) and do not count in the gradient
// norm. An optimizer works on the CPU or on a GPU, whose stream must then be current. Muon and Adafactor, which update a parameter as a
// whole, keep their state in host memory and update there. Not thread-safe.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nn/eager.h"
#include "optim/adamw_tile.h"
#include "optim/rules/settings.h"

namespace spillway::eager {

class Optimizer {
 public:
  using Parameters = std::vector<std::shared_ptr<nn::Parameter>>;
  /// Creates an optimizer for all parameters that are not frozen, or for `parameters`, which must belong to `weights`. Master weights start
  /// from the present values, so fill the weights first. `weights` must outlive the optimizer. Throws Error(usage) for a frozen parameter,
  /// one that is listed twice, and settings that are not finite or that PyTorch rejects.
  Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings);
  Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings, Parameters parameters);

  /// Updates each parameter that has a gradient, with the gradient times `gradient_scale` (a clip factor or 1 / loss scale).
  void step(double gradient_scale = 1);
  /// Drops the gradients of the optimizer's parameters.
  void zero_grad();
  /// Returns the norm of the parameters' gradients, without any gradient scale.
  /// optim::clip_factor(gradient_norm(), 1) is the factor by which PyTorch's clip_grad_norm_(…, 1) scales.
  double gradient_norm() const;
  /// Sets the learning rate of the following steps (optim/schedule.h). Initially it is the rate of the settings. Throws Error(usage) if
  /// `rate` is negative or not finite.
  void set_learning_rate(double rate);
  double learning_rate() const { return learning_rate_; }
  /// Replaces the settings, the learning rate included. Throws Error(usage) for settings that the constructor refuses, or that select
  /// another update rule, which would need another state.
  void set_settings(const optim::RuleSettings& settings);
  const Parameters& parameters() const { return parameters_; }

  /// The state of one parameter: the number of its steps, and master weights and moments in host memory, f32 or f64, under PyTorch's names
  /// ("exp_avg").
  struct ParameterState {
    i64 steps = 0;
    std::vector<std::pair<std::string, Tensor>> parts;
  };
  /// Returns a copy of the state of parameters()[index].
  ParameterState state(size_t index) const;
  /// Restores what state() returned. Throws Error(usage) if a part has another name or shape; its type may differ.
  void set_state(size_t index, const ParameterState& state);
  /// Makes the state of parameters()[index] that of a new optimizer.
  void forget_state(size_t index) { states_.at(index).steps = 0, begin(*parameters_[index], states_[index]); }

  /// save() writes master weights, moments and step counts to a safetensors file with PyTorch's names ("wte.weight.exp_avg"); load()
  /// restores them bit for bit. The weights are not included (see models::save). The file is written under a temporary name; when
  /// complete, it replaces an existing file. load() throws Error(data) on a file for other parameters, other shapes or another rule.
  void save(const std::filesystem::path& file) const { save_all(file, {this}); }
  void load(const std::filesystem::path& file) { load_all(file, {this}); }
  /// save_all() and load_all() do the same as save() and load() for several optimizers that share one file. The names of the second
  /// optimizer begin with "1.", those of the third with "2.".
  static void save_all(const std::filesystem::path& file, const std::vector<const Optimizer*>& optimizers);
  static void load_all(const std::filesystem::path& file, const std::vector<Optimizer*>& optimizers);

 private:
  struct State {
    Tensor bytes;  // the optimizer state in tiles of `format`, one after the other
    i64 steps = 0;
    optim::StateFormat format;
  };
  struct Part {
    std::string name;
    int number;  // a number of the enum optim::StatePart
    DType dtype;
    Shape shape;
  };
  // Returns the names of the optimizers' rules, with commas between them.
  static std::string rules_of(const std::vector<const Optimizer*>& optimizers);
  optim::RuleSettings rule_for(const nn::Parameter& parameter) const;
  std::vector<Part> parts_of(const nn::Parameter& parameter, const State& state) const;
  void begin(const nn::Parameter& parameter, State& state) const;
  void update(const nn::Parameter& parameter, const Tensor& gradient, const Tensor& value, State& state, double gradient_scale) const;

  nn::EagerParameters& weights_;
  optim::RuleSettings settings_;
  const Parameters parameters_;
  double learning_rate_;
  std::vector<State> states_;  // the state of each parameter
};

}  // namespace spillway::eager
