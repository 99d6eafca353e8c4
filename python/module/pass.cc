#include "python/module/pass.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "ops/dense.h"
#include "tensor/tensor.h"

namespace spillway::python {
namespace {

thread_local Pass* current_pass = nullptr;

}  // namespace

struct Pass::Held final : InBlock {
  explicit Held(Variable v, std::shared_ptr<Pass> of) : value(std::move(v)), pass(std::move(of)) {}
  const Variable& variable() const override {
    if (pass->context_ == nullptr || current_pass != pass.get())
      throw Error(ErrorCode::usage,
                  "[forward] expected a tensor of the forward that runs now, got one that an earlier forward, or another "
                  "block's, computed: such a tensor ends with its forward; return it to pass it to the next block, or use "
                  "numpy() for a copy of its values");
    return value;
  }
  Variable value;
  const std::shared_ptr<Pass> pass;
};

const Variable& Declared::variable() const {
  if (current_pass != nullptr) return current_pass->parameter(*this);
  if (!own.value.defined()) draw();
  return own;
}

Pass::Pass(const std::string& block, const std::vector<BlockParameter>& parameters, const Variable& input, const nn::Context& context)
    : block_(block), parameters_(parameters), input_slot_(input.slot), read_input_(!input.needs_gradient()), context_(&context) {}

Pass* Pass::current() { return current_pass; }

void Pass::begin() {
  require(current_pass == nullptr, "[forward] expected no forward of another block on this thread, got one");
  current_pass = this;
}

void Pass::end() {
  current_pass = nullptr;
  context_ = nullptr;
  for (const auto& each : held_) {
    if (const auto held = each.lock()) held->value = {};
  }
  held_.clear();
  bound_.clear();
}

const nn::Context& Pass::context() const {
  if (context_ == nullptr || current_pass != this)
    throw Error(ErrorCode::usage,
                "[forward] expected the batch of the forward that runs now, got one of an earlier forward or of another "
                "block: a batch ends with its forward");
  return *context_;
}

std::shared_ptr<const InBlock> Pass::hold(Variable v) {
  auto held = std::make_shared<Held>(std::move(v), shared_from_this());
  held_.push_back(held);
  return held;
}

const Variable& Pass::parameter(const Declared& declared) {
  const auto [entry, fresh] = bound_.try_emplace(&declared);
  if (!fresh) return entry->second;
  const auto found = std::ranges::find_if(parameters_, [&](const BlockParameter& one) { return one.declared.get() == &declared; });
  if (found == parameters_.end()) {
    bound_.erase(entry);
    throw Error(ErrorCode::usage, "[forward] expected block `" + block_ + "` to use only its own parameters, got a Parameter of shape " +
                                      to_string(declared.shape) +
                                      " that it does not have: make it an attribute of the block before the Trainer is made (also in a "
                                      "list, a dict or a Block among its attributes)");
  }
  return entry->second = context().use(*found->use.parameter, found->use.use);
}

void Pass::read(const Variable& v) { read_input_ = read_input_ || v.slot == input_slot_; }

void Pass::check_all_used() const {
  for (const BlockParameter& one : parameters_) {
    if (bound_.contains(one.declared.get()) || !one.declared->trainable()) continue;
    throw Error(ErrorCode::usage, "[forward] expected block `" + block_ + "` to use all its parameters, got a forward that does not use " +
                                      one.use.parameter->name + ": use it, remove it, or declare it with requires_grad=False");
  }
}

Tensor Pass::brought(const Tensor& t) {
  const Stream& stream = Stream::current();
  if (t.device() == stream.device) return t;
  if (stream.is_meta()) {
    if (stream.device.works_as_cuda()) return empty(t.shape(), t.dtype(), "constant");
    const auto storage = Storage::vacant(stream.device, t.shape().elems() * size_of(t.dtype()));
    storage->fill(nullptr);
    return Tensor(storage, 0, t.shape(), t.dtype());
  }
  if (t.device() != Device::cpu())
    throw Error(ErrorCode::usage, "[device] expected tensors in host memory or on " + to_string(stream.device) +
                                      ", where the block runs, got "
                                      "one on " +
                                      to_string(t.device()) + ": move it to host memory with cpu()");
  const Stream host{.memory = &MemoryPool::heap()};
  const Tensor same = [&] {
    const StreamScope scope(host);
    return ops::dense(t);
  }();
  return to_current_device(same, "constant");
}

Tensor Pass::values(const Tensor& t) const {
  if (t.device().is_meta())
    throw Error(ErrorCode::usage, "[forward] block `" + block_ +
                                      "`: expected a forward that does not read the numbers of a tensor, because it first runs without "
                                      "numbers, to measure its memory, got one that does: use operations on whole tensors, such as "
                                      "spillway.where");
  const Tensor same = ops::dense(t);
  const Stream host{.memory = &MemoryPool::heap()};
  const Tensor copy = [&] {
    const StreamScope scope(host);
    return empty(t.shape(), t.dtype(), "copy of values");
  }();
  if (t.elems() > 0) transfer(copy.raw(), same.raw(), copy.bytes());
  return copy;
}

RandomKey Pass::next_dropout() { return context().random.derive("dropout").derive(block_).derive(std::to_string(dropouts_++)); }

}  // namespace spillway::python
