// Every update rule of the library over a model's parameters or tensors of the user's own.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "eager/optimizer.h"
#include "optim/norm.h"
#include "python/module/model.h"

namespace spillway::python {
namespace {

class Optimizer {
 public:
  Optimizer(const optim::RuleSettings& settings, const std::vector<Array>& parameters)
      : weights_(weights_of(parameters)), device_(weights_->eager->memory(parameters.front().leaf->id).device()) {
    for (const Array& each : parameters) chosen_.push_back(each.leaf->id);
    std::vector<std::shared_ptr<nn::Parameter>> chosen;
    for (const u32 id : chosen_) chosen.push_back(weights_->eager->parameters().at(id));
    const Running running(device_);
    const Unlocked unlocked;
    optimizer_.emplace(*weights_->eager, settings, std::move(chosen));
  }

  std::optional<double> step(double gradient_scale, std::optional<double> max_norm) {
    const Running running(device_);
    const Unlocked unlocked;
    const std::lock_guard locked(weights_->lock);
    check_in_place();
    if (!max_norm) return optimizer_->step(gradient_scale), std::nullopt;
    const double norm = optimizer_->gradient_norm() * gradient_scale;
    optimizer_->step(gradient_scale * optim::clip_factor(norm, *max_norm));
    return norm;
  }
  double gradient_norm() {
    const Running running(device_);
    const Unlocked unlocked;
    const std::lock_guard locked(weights_->lock);
    check_in_place();
    return optimizer_->gradient_norm();
  }
  void zero_grad() {
    const std::lock_guard locked(weights_->lock);
    optimizer_->zero_grad();
  }
  double lr() const { return optimizer_->learning_rate(); }
  void set_lr(double rate) { optimizer_->set_learning_rate(rate); }
  void save(const std::string& file) const {
    const Running running(device_);
    check_in_place();
    optimizer_->save(file);
  }
  void load(const std::string& file) {
    const Running running(device_);
    check_in_place();
    optimizer_->load(file);
  }

 private:
  // Weights, gradients and the state on one device.
  void check_in_place() const {
    for (const u32 id : chosen_) {
      const Device now = weights_->eager->memory(id).device();
      const Tensor gradient = weights_->eager->gradient(id, 0);
      if (now == device_ && (!gradient.defined() || gradient.device() == device_)) continue;
      throw Error(ErrorCode::usage, "[optimizer] expected " + weights_->eager->parameters()[id]->name + " and its gradient on " +
                                        to_string(device_) + ", where it was when the optimizer was made, got " + to_string(now) +
                                        ": make the optimizer, and compute the loss, after model.to()");
    }
  }

  static std::shared_ptr<Weights> weights_of(const std::vector<Array>& parameters) {
    if (parameters.empty()) throw nb::value_error("params: expected a model, or tensors that want a gradient, got none");
    for (const Array& each : parameters) {
      if (!each.leaf) throw nb::value_error("params: expected tensors with requires_grad, got one without (frozen, or computed of others)");
    }
    const auto held = std::ranges::find_if(parameters, [](const Array& each) { return each.leaf->weights != nullptr; });
    if (held == parameters.end()) return taken(parameters);
    const std::shared_ptr<Weights> weights = held->leaf->weights;
    for (const Array& each : parameters) {
      if (each.leaf->weights != weights)
        throw nb::value_error("params: expected those of one model, or tensors that no other optimizer holds: make an optimizer for each");
    }
    return weights;
  }

  static std::shared_ptr<Weights> taken(const std::vector<Array>& parameters) {
    std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>> tensors;
    std::vector<Tensor> gradients;
    for (const Array& each : parameters) {
      if (!each.value().is_contiguous()) throw nb::value_error("params: expected contiguous tensors");
      if (each.value().device() != parameters.front().value().device()) throw nb::value_error("params: expected tensors on one device");
      if (std::ranges::any_of(tensors, [&](const auto& one) { return one.second == each.leaf; }))
        throw nb::value_error("params: expected each tensor once");
      tensors.emplace_back(each.value(), each.leaf);
    }
    const Running running(parameters.front().value().device());
    const auto weights = std::make_shared<Weights>(tensors);
    for (const auto& [tensor, leaf] : tensors) leaf->weights = weights;
    return weights;
  }

  const std::shared_ptr<Weights> weights_;
  const Device device_;
  std::vector<u32> chosen_;
  std::optional<eager::Optimizer> optimizer_;
};

optim::RuleSettings settings_of(const std::string& name, const nb::dict& values) {
  size_t used = 0;
  const auto take = [&]<class T>(const char* key, T& into) {
    if (!values.contains(key)) return;
    into = nb::cast<T>(values[key]);
    ++used;
  };
  const auto whole = [&](const optim::RuleSettings& settings) {
    if (used != nb::len(values)) throw nb::type_error(("expected the settings of " + name + ", got another").c_str());
    return settings;
  };
  if (name == "sgd") {
    optim::SgdSettings s;
    take("lr", s.lr), take("momentum", s.momentum), take("dampening", s.dampening), take("weight_decay", s.weight_decay),
        take("nesterov", s.nesterov);
    return whole(s);
  }
  if (name == "adam" || name == "adamw") {
    optim::AdamSettings s;
    s.decoupled_weight_decay = name == "adamw";
    take("lr", s.lr), take("beta1", s.beta1), take("beta2", s.beta2), take("eps", s.eps), take("weight_decay", s.weight_decay),
        take("amsgrad", s.amsgrad);
    return whole(s);
  }
  if (name == "adagrad") {
    optim::AdagradSettings s;
    take("lr", s.lr), take("lr_decay", s.lr_decay), take("weight_decay", s.weight_decay), take("eps", s.eps);
    take("initial_accumulator_value", s.initial_accumulator_value);
    return whole(s);
  }
  if (name == "rmsprop") {
    optim::RmspropSettings s;
    take("lr", s.lr), take("alpha", s.alpha), take("eps", s.eps), take("weight_decay", s.weight_decay), take("momentum", s.momentum),
        take("centered", s.centered);
    return whole(s);
  }
  if (name == "lion") {
    optim::LionSettings s;
    take("lr", s.lr), take("beta1", s.beta1), take("beta2", s.beta2), take("weight_decay", s.weight_decay);
    return whole(s);
  }
  if (name == "muon") {
    optim::MuonSettings s;
    take("lr", s.lr), take("momentum", s.momentum), take("weight_decay", s.weight_decay), take("nesterov", s.nesterov);
    take("beta1", s.beta1), take("beta2", s.beta2), take("eps", s.eps);
    return whole(s);
  }
  if (name == "adafactor") {
    optim::AdafactorSettings s;
    take("lr", s.lr), take("beta2_decay", s.beta2_decay), take("eps2", s.eps2), take("d", s.d), take("weight_decay", s.weight_decay);
    return whole(s);
  }
  throw nb::value_error(("expected the name of an update rule, got " + name).c_str());
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  nb::class_<Optimizer>(module, "Optimizer", "What all optimizers share. Weights of bf16 and f16 have an f32 master.")
      .def(
          "__init__",
          [](Optimizer* self, const std::string& name, const nb::dict& settings, const std::vector<Array>& parameters) {
            new (self) Optimizer(settings_of(name, settings), parameters);
          },
          nb::arg("rule"), nb::arg("settings"), nb::arg("parameters"))
      .def("step", &Optimizer::step, nb::arg("gradient_scale") = 1.0, nb::arg("max_norm") = nb::none(),
           "Moves each parameter that has a gradient by it times gradient_scale. max_norm clips the norm of all, and "
           "returns what it was.")
      .def("zero_grad", &Optimizer::zero_grad, "Lets go of the parameters' gradients.")
      .def("gradient_norm", &Optimizer::gradient_norm)
      .def_prop_rw("lr", &Optimizer::lr, &Optimizer::set_lr, "The learning rate of the steps from now on.")
      .def("_save", &Optimizer::save, nb::arg("file"))
      .def("_load", &Optimizer::load, nb::arg("file"));
}

}  // namespace spillway::python
