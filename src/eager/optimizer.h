// Every update rule of optim as an optimizer of the eager way, in PyTorch's words:
//   Optimizer optimizer(weights, optim::AdamSettings{.lr = 1e-3, .decoupled_weight_decay = true});
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
// The same kernels as a planned step's: weights of f32 and f64 are their own master, those of bf16 and f16 have an fp32 one; moments are
// f32 (f64). As in PyTorch weight decay meets every parameter of the list, and one without a gradient is left out: for other rates of some
// parameters make an optimizer for them. Running statistics (batch norm's) are moved by their own rule (nn::Parameter::statistic) and are
// in no norm. On the CPU or a GPU, whose stream must then be in force; Muon and Adafactor, which step a parameter as a whole, then keep its
// state in host memory and step it there. Not thread-safe.
#pragma once
#include <filesystem>

#include "nn/eager.h"
#include "optim/adamw_tile.h"
#include "optim/rules/settings.h"

namespace spillway::eager {

class Optimizer {
 public:
  using Parameters = std::vector<std::shared_ptr<nn::Parameter>>;
  /// Of all that are not frozen, or of `parameters`, all of them `weights`' own. Masters begin at the values that there are: fill the
  /// weights before. `weights` must outlive it. Throws Error(usage) on a frozen parameter, on one that is listed twice, and on settings
  /// that PyTorch does not take either or that are not finite.
  Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings);
  Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings, Parameters parameters);

  /// Moves each parameter that has a gradient by it times `gradient_scale` (a clip factor, 1 / loss scale).
  void step(double gradient_scale = 1);
  /// Lets go of their gradients.
  void zero_grad();
  /// Over their gradients as they are. optim::clip_factor(gradient_norm(), 1) is what clip_grad_norm_(…, 1) scales by.
  double gradient_norm() const;
  /// Of the steps from now on (optim/schedule.h); at first the settings' own. Throws Error(usage) on one below 0 or not finite.
  void set_learning_rate(double rate);
  double learning_rate() const { return learning_rate_; }
  const Parameters& parameters() const { return parameters_; }

  /// Masters, moments and counts, as a safetensors file by PyTorch's names ("wte.weight.exp_avg"), which load() takes back to the bit; the
  /// weights are not in it (models::save). The file is written beside its place and replaces what is there when it is whole. load throws
  /// Error(data) on one of other parameters, shapes or another rule.
  void save(const std::filesystem::path& file) const;
  void load(const std::filesystem::path& file);

 private:
  struct State {
    Tensor bytes;  // tiles of `format`, one after the other
    i64 steps = 0;
    optim::StateFormat format;
  };
  struct Part {
    std::string name;
    int number;  // of optim::StatePart
    DType dtype;
    Shape shape;
  };
  optim::RuleSettings rule_for(const nn::Parameter& parameter) const;
  std::vector<Part> parts_of(const nn::Parameter& parameter, const State& state) const;
  void begin(const nn::Parameter& parameter, State& state) const;
  void update(const nn::Parameter& parameter, const Tensor& gradient, const Tensor& value, State& state, double gradient_scale) const;

  nn::EagerParameters& weights_;
  const optim::RuleSettings settings_;
  const Parameters parameters_;
  double learning_rate_;
  std::vector<State> states_;  // of each of them
};

}  // namespace spillway::eager
