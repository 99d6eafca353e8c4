#include "nn/eager.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/elementwise.h"

namespace spillway::nn {

EagerParameters::EagerParameters(std::vector<std::shared_ptr<Parameter>> parameters) : parameters_(std::move(parameters)) {
  const bool fresh = std::ranges::all_of(parameters_, [](const auto& p) { return p->id == 0; });
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    require(!parameter.storage->resident(), "[eager] expected parameters without memory, got one that is already in memory");
    if (fresh) parameter.id = static_cast<u32>(i);
    require(parameter.id == i,
            "[eager] expected either all parameters of a model in the order of their ids, or parameters that belong to no model");
  }
  for (const auto& parameter : parameters_) memory_.push_back(zeros(parameter->value().shape(), parameter->dtype, "weights"));
  for (const auto& parameter : parameters_) parameter->storage->borrow(memory_[parameter->id].storage(), memory_[parameter->id].raw());
}

EagerParameters::~EagerParameters() {
  for (const auto& parameter : parameters_) parameter->storage->drop();
}

const std::shared_ptr<Parameter>& EagerParameters::parameter(const std::string& name) const {
  const auto found = std::ranges::find_if(parameters_, [&](const auto& p) { return p->name == name; });
  if (found != parameters_.end()) return *found;
  const std::string first = parameters_.empty() ? "" : "; the first is named " + parameters_.front()->name;
  throw Error(ErrorCode::usage, "[eager] expected the name of a parameter, got " + name + ": the number of parameters is " +
                                    std::to_string(parameters_.size()) + first);
}

void EagerParameters::adopt(u32 id, const Tensor& memory) {
  Parameter& parameter = *parameters_.at(id);
  const Tensor now = parameter.value();
  if (memory.shape() != now.shape() || memory.dtype() != now.dtype() || memory.device() != now.device() || !memory.is_contiguous()) {
    throw Error(ErrorCode::usage, "[eager] expected contiguous " + std::string(spillway::to_string(now.dtype())) + " " +
                                      spillway::to_string(now.shape()) + " on " + spillway::to_string(now.device()) + " for " +
                                      parameter.name + ", got " + (memory.is_contiguous() ? "" : "strided ") +
                                      std::string(spillway::to_string(memory.dtype())) + " " + spillway::to_string(memory.shape()) +
                                      " on " + spillway::to_string(memory.device()));
  }
  parameter.storage->drop();
  parameter.storage->borrow(memory.storage(), memory.raw());
  memory_[id] = memory;
}

// Moves all parameters or none: if memory at the destination runs out, all parameters stay where they were.
void EagerParameters::move(const std::function<Tensor(const Tensor&)>& moved) {
  std::vector<Tensor> there;
  for (const auto& parameter : parameters_) there.push_back(moved(parameter->value()));
  forget();
  for (size_t i = 0; i < there.size(); ++i) {
    parameters_[i]->storage = Storage::vacant(there[i].device(), there[i].bytes());
    parameters_[i]->storage->borrow(there[i].storage(), there[i].raw());
  }
  memory_ = std::move(there);
}

void EagerParameters::to_current_device() {
  move([](const Tensor& value) { return spillway::to_current_device(value, "weights"); });
}

void EagerParameters::to_host() {
  move([](const Tensor& value) { return spillway::to_host(value); });
}

Tensor EagerParameters::gradient(u32 parameter, u8 use) const {
  const auto entry = gradients_.find({parameter, use});
  return entry == gradients_.end() ? Tensor() : entry->second;
}

Tensor EagerParameters::gradient(u32 parameter) const {
  Tensor sum;
  bool own = false;  // false while `sum` is a stored gradient, which must not be written to
  for (auto entry = gradients_.lower_bound({parameter, 0}); entry != gradients_.end() && entry->first.first == parameter; ++entry) {
    if (!sum.defined()) {
      sum = entry->second;
      continue;
    }
    const Tensor out = own ? sum : empty(sum.shape(), sum.dtype(), "gradient");
    kernels::add(sum, entry->second, out);
    sum = out;
    own = true;
  }
  return sum;
}

i64 EagerParameters::passes(u32 parameter) const {
  const auto first_use = passes_.lower_bound({parameter, 0});
  return first_use != passes_.end() && first_use->first.first == parameter ? first_use->second : 0;
}

void EagerParameters::forget() {
  unfinished_.clear();
  gradients_.clear();
  passes_.clear();
}

void EagerParameters::forget(u32 parameter) {
  const auto is_its = [=](const auto& entry) { return entry.first.first == parameter; };
  std::erase_if(unfinished_, is_its);
  std::erase_if(gradients_, is_its);
  std::erase_if(passes_, is_its);
}

void EagerParameters::scale(u32 parameter, double factor) {
  for (const auto& [key, gradient] : gradients_) {
    if (key.first != parameter) continue;
    kernels::scale(gradient, factor, gradient);
    gradient.storage()->written();
  }
}

Tensor EagerParameters::target(u32 parameter, u8 use, const Shape& shape, DType dtype) {
  Tensor& target = unfinished_[{parameter, use}];
  require(!target.defined(), "[eager] expected the gradient to be finished before it is requested again");
  target = empty(shape, dtype, "gradient");
  return target;
}

void EagerParameters::done(u32 parameter, u8 use) {
  auto node = unfinished_.extract({parameter, use});
  require(!node.empty(), "[eager] expected the gradient to be requested by target() before done() reports it");
  if (hook_) hook_(*parameters_.at(parameter), node.mapped());
  ++passes_[node.key()];
  const auto [kept, first] = gradients_.try_emplace(node.key(), node.mapped());
  if (first) return;
  kernels::accumulate(kept->second, node.mapped());
  kept->second.storage()->written();
}

Variable run(const Sequential& model, const Context& context) {
  Variable x;
  Context here = context;
  if (model.router_loss_experts > 0 && context.mode == Mode::train && !context.all_logits)
    here.router_load_2E = zeros({2, model.router_loss_experts}, DType::f64);
  for (here.block = 0; here.block < model.blocks.size(); ++here.block) x = model.blocks[here.block]->forward(x, here);
  return x;
}

}  // namespace spillway::nn
