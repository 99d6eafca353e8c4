#include "nn/eager.h"

#include "base/error.h"
#include "kernels/accumulate.h"

namespace spillway::nn {

EagerParameters::EagerParameters(const Sequential& model) : model_(model) {
  for (const auto& parameter : model.parameters) require(!parameter->storage->resident(), "[eager] a parameter already has memory");
  for (const auto& parameter : model.parameters) memory_.push_back(zeros(parameter->value().shape(), parameter->dtype, "weights"));
  for (const auto& parameter : model.parameters) parameter->storage->fill(memory_[parameter->id].raw());
}

EagerParameters::~EagerParameters() {
  for (const auto& parameter : model_.parameters) parameter->storage->drop();
}

Tensor EagerParameters::gradient(u32 parameter, u8 use) const {
  const auto entry = gradients_.find({parameter, use});
  return entry == gradients_.end() ? Tensor() : entry->second;
}

Tensor EagerParameters::gradient(u32 parameter) const {
  Tensor sum;
  bool own = false;  // a gradient kept for one use is never written here
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

void EagerParameters::forget() { gradients_.clear(); }

Tensor EagerParameters::target(u32 parameter, u8 use, const Shape& shape, DType dtype) {
  Tensor& target = unfinished_[{parameter, use}];
  require(!target.defined(), "[eager] a gradient was asked for twice before it was done");
  target = empty(shape, dtype, "gradient");
  return target;
}

void EagerParameters::done(u32 parameter, u8 use) {
  auto node = unfinished_.extract({parameter, use});
  require(!node.empty(), "[eager] a gradient is done that was never asked for");
  const auto [kept, first] = gradients_.try_emplace(node.key(), node.mapped());
  if (!first) kernels::accumulate(kept->second, node.mapped());
}

Variable run(const Sequential& model, const Context& context) {
  Variable x;
  Context here = context;
  if (model.router_loss_experts > 0 && context.mode == Mode::train) here.router_load_2E = zeros({2, model.router_loss_experts}, DType::f64);
  for (here.block = 0; here.block < model.blocks.size(); ++here.block) x = model.blocks[here.block]->forward(x, here);
  return x;
}

}  // namespace spillway::nn
