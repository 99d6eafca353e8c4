// Binds the library's update rules as optimizers over a model's parameters or over tensors that the user made.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "eager/checks.h"
#include "eager/optimizer.h"
#include "eager/square_sum.h"
#include "kernels/elementwise/elementwise.h"
#include "optim/norm.h"
#include "python/module/arrays.h"
#include "python/module/model.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

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

// The Python class of optimizers. Every function takes its own turn, the right to compute (turn.h), and must be called with the GIL held.
class Optimizer {
 public:
  explicit Optimizer(std::string rule) : rule_(std::move(rule)) {}

  // Adds a parameter group with these settings and parameters.
  void add(const nb::dict& settings, const std::vector<Array>& parameters) {
    check(parameters);
    const optim::RuleSettings own = settings_of(rule_, settings);
    const Device device = places_.empty() ? parameters.front().value().device() : device_;
    for (const Array& each : parameters) {
      if (!each.value().is_contiguous()) throw WrongValue("params: expected contiguous tensors, got one with other strides");
      if (each.value().device() != device) throw WrongValue("params: expected all tensors on one device, got tensors on several");
    }
    const Running running(device, true);
    device_ = device;
    const size_t before = places_.size();
    for (const Array& each : parameters) places_.push_back({each.value(), each.leaf, settings_.size()});
    settings_.push_back(own);
    try {
      take_up();
    } catch (...) {
      places_.resize(before), settings_.pop_back();
      throw;
    }
  }

  // Updates the settings of all groups, and then the parameters that have a gradient.
  std::optional<double> step(const std::vector<nb::dict>& settings, double gradient_scale, std::optional<double> max_norm) {
    if (!std::isfinite(gradient_scale)) throw WrongValue("gradient_scale: expected a finite number, got " + std::to_string(gradient_scale));
    if (max_norm && !(*max_norm >= 0)) throw WrongValue("max_norm: expected a number of 0 or above, got " + std::to_string(*max_norm));
    const std::vector<optim::RuleSettings> own = settings_in(settings);
    const Running running(device_, true);
    take_up();
    set(own);
    check_in_place();
    std::optional<double> norm;
    if (max_norm) {
      norm = gradient_norm_now() * gradient_scale;
      gradient_scale *= optim::clip_factor(*norm, *max_norm);
    }
    for (const auto& part : parts_) part->optimizer->step(gradient_scale);
    return norm;
  }
  double gradient_norm() {
    const Running running(device_, true);
    check_in_place();
    return gradient_norm_now();
  }
  void check_settings(const nb::dict& settings) const { eager::check_settings(settings_of(rule_, settings)); }
  void zero_grad() {
    const Turn turn(false);
    for (const Place& place : places_) Array{{}, nullptr, place.leaf}.forget_gradient();
  }

  // Returns for a parameter, counted over all groups, the number of its steps and its state by name.
  nb::tuple state(i64 index) const {
    const Place& place = places_.at(static_cast<size_t>(index));
    eager::Optimizer::ParameterState state;
    if (place.part) {
      const Running running(device_, true);
      state = place.part->optimizer->state(place.index);
    }
    nb::dict parts;
    for (const auto& [name, values] : state.parts) parts[name.c_str()] = nb::cast(constant(values));
    return nb::make_tuple(state.steps, parts);
  }
  // Sets the states of parameters to those that state() returned. Parameters that are not in `given` get the state of a new optimizer.
  void set_states(const std::vector<nb::dict>& settings, const nb::dict& given) {
    std::map<size_t, eager::Optimizer::ParameterState> states;
    for (const auto& [index, state] : given) {
      const nb::tuple both = nb::cast<nb::tuple>(state);
      eager::Optimizer::ParameterState& own = states[static_cast<size_t>(nb::cast<i64>(index))];
      own.steps = nb::cast<i64>(both[0]);
      for (const auto& [name, values] : nb::cast<nb::dict>(both[1])) {
        const std::string text = nb::cast<std::string>(name);
        own.parts.emplace_back(text, copy_of(nb::borrow(values), text.c_str()));
      }
    }
    const std::vector<optim::RuleSettings> own = settings_in(settings);
    const Running running(device_, true);
    take_up();
    set(own);
    check_in_place();
    for (size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      const auto found = states.find(i);
      if (place.part && found != states.end()) place.part->optimizer->set_state(place.index, found->second);
      if (place.part && found == states.end()) place.part->optimizer->forget_state(place.index);
    }
  }

  void save(const std::string& file) const {
    const Running running(device_, true);
    check_in_place();
    std::vector<const eager::Optimizer*> all;
    for (const auto& part : parts_) all.push_back(&*part->optimizer);
    eager::Optimizer::save_all(file, all);
  }
  void load(const std::string& file) {
    const Running running(device_, true);
    check_in_place();
    std::vector<eager::Optimizer*> all;
    for (const auto& part : parts_) all.push_back(&*part->optimizer);
    eager::Optimizer::load_all(file, all);
  }

 private:
  // The parameters of one optimizer group that belong to one model, or to no model.
  struct Part {
    std::shared_ptr<Weights> weights;
    size_t group = 0;
    std::optional<eager::Optimizer> optimizer;
  };
  // A parameter's position in the optimizer. It has no Part while it does not require a gradient.
  struct Place {
    Tensor value;
    std::shared_ptr<Leaf> leaf;
    size_t group = 0;
    std::shared_ptr<Part> part = {};
    size_t index = 0;  // the parameter's index among the parameters of its Part
  };

  double gradient_norm_now() const {
    if (parts_.size() == 1) return parts_.front()->optimizer->gradient_norm();
    double squares = 0;
    for (const auto& part : parts_) squares += std::pow(part->optimizer->gradient_norm(), 2);
    return std::sqrt(squares);
  }

  std::vector<optim::RuleSettings> settings_in(const std::vector<nb::dict>& given) const {
    std::vector<optim::RuleSettings> settings;
    for (const nb::dict& one : given) settings.push_back(settings_of(rule_, one));
    if (settings.size() != settings_.size())
      throw WrongValue("param_groups: expected " + std::to_string(settings_.size()) + " groups, got " + std::to_string(settings.size()) +
                       ": use add_param_group() for another group");
    return settings;
  }
  void set(const std::vector<optim::RuleSettings>& settings) {
    for (const auto& part : parts_) part->optimizer->set_settings(settings[part->group]);
    settings_ = settings;
  }

  // Gives a Part to each parameter that requires a gradient and does not have one yet.
  void take_up() {
    std::map<std::pair<size_t, Weights*>, std::vector<Place*>> fresh;
    for (Place& place : places_) {
      if (!place.part && place.leaf->wants()) fresh[{place.group, place.leaf->weights.get()}].push_back(&place);
    }
    for (const auto& [key, places] : fresh) {
      auto part = std::make_shared<Part>();
      part->group = key.first, part->weights = key.second ? places.front()->leaf->weights : weights_of(places);
      std::vector<std::shared_ptr<nn::Parameter>> chosen;
      for (const Place* place : places) chosen.push_back(part->weights->eager->parameters().at(place->leaf->id));
      part->optimizer.emplace(*part->weights->eager, settings_[part->group], std::move(chosen));
      for (size_t i = 0; i < places.size(); ++i) places[i]->part = part, places[i]->index = i;
      parts_.push_back(std::move(part));
    }
  }

  // Throws an Error unless weights, gradients and state are on the device where the optimizer was made.
  void check_in_place() const {
    for (const Place& place : places_) {
      if (!place.part) continue;
      const nn::EagerParameters& eager = *place.part->weights->eager;
      const Device now = eager.memory(place.leaf->id).device();
      const Tensor gradient = eager.gradient(place.leaf->id, 0);
      if (now == device_ && (!gradient.defined() || gradient.device() == device_)) continue;
      throw Error(ErrorCode::usage, "[optimizer] expected " + eager.parameters()[place.leaf->id]->name + " and its gradient on " +
                                        to_string(device_) + ", where it was when the optimizer was made, got " + to_string(now) +
                                        ": make the optimizer, and compute the loss, after model.to()");
    }
  }

  void check(const std::vector<Array>& parameters) const {
    if (parameters.empty()) throw WrongValue("params: expected a model, or tensors with requires_grad, got none");
    std::set<const Leaf*> seen;
    for (const Place& place : places_) seen.insert(place.leaf.get());
    bool any = false;
    for (const Array& each : parameters) {
      if (!each.leaf) throw WrongValue("params: expected tensors with requires_grad, got one without, which was computed or is a constant");
      if (!seen.insert(each.leaf.get()).second)
        throw WrongValue("params: expected each parameter once, got " + (each.leaf->name.empty() ? "a tensor" : each.leaf->name) +
                         " twice: each step would update it twice");
      any = any || each.leaf->wants();
    }
    if (!any) throw WrongValue("params: expected at least one tensor with requires_grad, got only frozen ones");
  }

  static std::shared_ptr<Weights> weights_of(const std::vector<Place*>& places) {
    std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>> tensors;
    for (const Place* place : places) tensors.emplace_back(place->value, place->leaf);
    const auto weights = std::make_shared<Weights>(tensors);
    for (const auto& [tensor, leaf] : tensors) leaf->weights = weights;
    return weights;
  }

  const std::string rule_;
  Device device_;
  std::vector<optim::RuleSettings> settings_;  // hyperparameters of each parameter group
  std::vector<Place> places_;                  // all parameters, one group after the other
  std::vector<std::shared_ptr<Part>> parts_;
};

// Scales the gradients of the parameters so that their norm is at most max_norm. Returns the norm before scaling.
double clip(const std::vector<Array>& parameters, double max_norm) {
  if (!(max_norm >= 0)) throw WrongValue("max_norm: expected a number of 0 or above, got " + std::to_string(max_norm));
  if (parameters.empty()) return 0;
  const Running running(parameters.front().value().device(), true);
  std::vector<Tensor> gradients;
  for (const Array& each : parameters) {
    const Tensor gradient = each.gradient();
    if (!gradient.defined()) continue;
    if (gradient.device() != Stream::current().device)
      throw WrongValue("parameters: expected all gradients on one device, got gradients on several");
    gradients.push_back(gradient.is_contiguous() && gradient.dtype() != DType::f16 ? gradient : converted(gradient, DType::f32));
  }
  const double norm = std::sqrt(eager::square_sum(gradients)), factor = max_norm == 0 ? 0 : optim::clip_factor(norm, max_norm);
  if (factor == 1) return norm;
  for (const Array& each : parameters) {
    if (!each.leaf) continue;
    if (each.leaf->weights) {
      each.leaf->weights->eager->scale(each.leaf->id, factor);
    } else if (each.leaf->gradient.defined()) {
      kernels::scale(each.leaf->gradient, factor, each.leaf->gradient);
      each.leaf->gradient.storage()->written();
    }
  }
  return norm;
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  nb::class_<Optimizer>(module, "Optimizer", "The base class of all optimizers. Weights of bf16 and f16 have an f32 master copy.")
      .def(
          "__init__", [](Optimizer* self, const Word& rule) { new (self) Optimizer(rule); }, nb::arg("rule"))
      .def(
          "_add",
          [](Optimizer& self, const nb::dict& settings, const nb::object& parameters) {
            self.add(settings, arrays_in(parameters, "params"));
          },
          nb::arg("settings"), nb::arg("parameters"))
      .def(
          "_step",
          [](Optimizer& self, const std::vector<nb::dict>& settings, const Real& gradient_scale, const std::optional<Real>& max_norm) {
            return self.step(settings, gradient_scale, max_norm ? std::optional<double>(*max_norm) : std::nullopt);
          },
          nb::arg("settings"), nb::arg("gradient_scale"), nb::arg("max_norm").none())
      .def("_check", &Optimizer::check_settings, nb::arg("settings"), "Raises what step() would raise for these settings.")
      .def("_zero_grad", &Optimizer::zero_grad)
      .def("gradient_norm", &Optimizer::gradient_norm, "The norm of all gradients together.")
      .def(
          "_state", [](const Optimizer& self, const Whole& index) { return self.state(index); }, nb::arg("index"))
      .def("_set_states", &Optimizer::set_states, nb::arg("settings"), nb::arg("states"))
      .def(
          "_save", [](const Optimizer& self, const nb::object& file) { self.save(path_of(file)); }, nb::arg("file"))
      .def(
          "_load", [](Optimizer& self, const nb::object& file) { self.load(path_of(file)); }, nb::arg("file"));
  module.def(
      "_clip_grad_norm",
      [](const nb::object& parameters, const Real& max_norm) { return clip(arrays_in(parameters, "parameters"), max_norm); },
      nb::arg("parameters"), nb::arg("max_norm"));
}

}  // namespace spillway::python
