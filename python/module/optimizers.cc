// Binds the library's update rules as optimizers over a model's parameters or over tensors that the user made.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "eager/optimizer.h"
#include "optim/norm.h"
#include "python/module/arrays.h"
#include "python/module/model.h"

namespace spillway::python {
namespace {

// The Python class of optimizers. Every function takes its own turn, the right to compute (turn.h), and must be called with the GIL held.
class Optimizer {
 public:
  Optimizer(const optim::RuleSettings& settings, const std::vector<Array>& parameters) {
    check(parameters);
    device_ = parameters.front().value().device();
    const Running running(device_, true);
    weights_ = weights_of(parameters);
    std::vector<std::shared_ptr<nn::Parameter>> chosen;
    for (const Array& each : parameters) {
      chosen_.push_back(each.leaf->id);
      chosen.push_back(weights_->eager->parameters().at(each.leaf->id));
    }
    check_in_place();
    optimizer_.emplace(*weights_->eager, settings, std::move(chosen));
  }

  std::optional<double> step(double gradient_scale, std::optional<double> max_norm) {
    if (!std::isfinite(gradient_scale)) throw WrongValue("gradient_scale: expected a finite number, got " + std::to_string(gradient_scale));
    if (max_norm && !(*max_norm >= 0)) throw WrongValue("max_norm: expected a number of 0 or above, got " + std::to_string(*max_norm));
    const Running running(device_, true);
    check_in_place();
    if (!max_norm) return optimizer_->step(gradient_scale), std::nullopt;
    const double norm = optimizer_->gradient_norm() * gradient_scale;
    optimizer_->step(gradient_scale * optim::clip_factor(norm, *max_norm));
    return norm;
  }
  double gradient_norm() {
    const Running running(device_, true);
    check_in_place();
    return optimizer_->gradient_norm();
  }
  void zero_grad() {
    const Turn turn(false);
    optimizer_->zero_grad();
  }
  double lr() const {
    const Turn turn(false);
    return optimizer_->learning_rate();
  }
  void set_lr(double rate) {
    const Turn turn(false);
    optimizer_->set_learning_rate(rate);
  }
  void save(const std::string& file) const {
    const Running running(device_, true);
    check_in_place();
    optimizer_->save(file);
  }
  void load(const std::string& file) {
    const Running running(device_, true);
    check_in_place();
    optimizer_->load(file);
  }

 private:
  // Throws unless weights, gradients and the state are on the device where the optimizer was made.
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

  static void check(const std::vector<Array>& parameters) {
    if (parameters.empty()) throw WrongValue("params: expected a model, or tensors with requires_grad, got none");
    std::set<const Leaf*> seen;
    for (const Array& each : parameters) {
      if (!each.leaf) throw WrongValue("params: expected tensors with requires_grad, got one without (frozen, or computed from others)");
      if (seen.insert(each.leaf.get()).second) continue;
      throw WrongValue("params: expected each parameter once, got " + (each.leaf->name.empty() ? "a tensor" : each.leaf->name) +
                       " twice: each step would update it twice");
    }
  }

  static std::shared_ptr<Weights> weights_of(const std::vector<Array>& parameters) {
    const auto held = std::ranges::find_if(parameters, [](const Array& each) { return each.leaf->weights != nullptr; });
    if (held == parameters.end()) return taken(parameters);
    const std::shared_ptr<Weights> weights = held->leaf->weights;
    for (const Array& each : parameters) {
      if (each.leaf->weights != weights)
        throw WrongValue(
            "params: expected parameters of one model, or tensors that no other optimizer holds: make an optimizer for each model");
    }
    return weights;
  }

  static std::shared_ptr<Weights> taken(const std::vector<Array>& parameters) {
    std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>> tensors;
    for (const Array& each : parameters) {
      if (!each.value().is_contiguous()) throw WrongValue("params: expected contiguous tensors, got one with other strides");
      if (each.value().device() != parameters.front().value().device())
        throw WrongValue("params: expected all tensors on one device, got tensors on several");
      tensors.emplace_back(each.value(), each.leaf);
    }
    const auto weights = std::make_shared<Weights>(tensors);
    for (const auto& [tensor, leaf] : tensors) leaf->weights = weights;
    return weights;
  }

  std::shared_ptr<Weights> weights_;
  Device device_;
  std::vector<u32> chosen_;
  std::optional<eager::Optimizer> optimizer_;
};

optim::RuleSettings settings_of(const std::string& name, const nb::dict& values) {
  size_t used = 0;
  const auto take = [&]<class T>(const char* key, T& into) {
    if (!values.contains(key)) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (!nb::isinstance<nb::bool_>(values[key])) throw WrongType(std::string(key) + ": expected a bool, got " + kind_of(values[key]));
      into = values[key].is(nb::bool_(true));
    } else {
      const Real number = Real::read(values[key]);
      if (!number.is_number()) throw WrongType(std::string(key) + ": expected a number, got " + kind_of(values[key]));
      into = number;
    }
    ++used;
  };
  const auto whole = [&](const optim::RuleSettings& settings) {
    if (used != nb::len(values)) throw WrongType("expected only settings of " + name + ", got another setting");
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
  throw WrongValue("expected the name of an update rule, got " + name);
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  nb::class_<Optimizer>(module, "Optimizer", "The base class of all optimizers. Weights of bf16 and f16 have an f32 master copy.")
      .def(
          "__init__",
          [](Optimizer* self, const Word& name, const nb::dict& settings, const nb::object& parameters) {
            new (self) Optimizer(settings_of(name, settings), arrays_in(parameters, "params"));
          },
          nb::arg("rule"), nb::arg("settings"), nb::arg("parameters"))
      .def(
          "step",
          [](Optimizer& self, const Real& gradient_scale, const std::optional<Real>& max_norm) {
            return self.step(gradient_scale, max_norm ? std::optional<double>(*max_norm) : std::nullopt);
          },
          nb::arg("gradient_scale") = 1.0, nb::arg("max_norm") = nb::none(),
          "Updates each parameter that has a gradient; gradients are multiplied by gradient_scale. If max_norm is given, clips their "
          "global norm and returns the norm before clipping.")
      .def("zero_grad", &Optimizer::zero_grad, "Clears the gradients of the parameters.")
      .def("gradient_norm", &Optimizer::gradient_norm)
      .def_prop_rw(
          "lr", &Optimizer::lr, [](Optimizer& self, const Real& rate) { self.set_lr(rate); }, "The learning rate of the steps from now on.")
      .def(
          "_save", [](const Optimizer& self, const nb::object& file) { self.save(path_of(file)); }, nb::arg("file"))
      .def(
          "_load", [](Optimizer& self, const nb::object& file) { self.load(path_of(file)); }, nb::arg("file"));
}

}  // namespace spillway::python
