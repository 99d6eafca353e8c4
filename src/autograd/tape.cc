#include "autograd/tape.h"

#include <algorithm>

#include "autograd/anomaly.h"
#include "autograd/kept_ops.h"
#include "autograd/no_grad.h"
#include "autograd/op_clock.h"
#include "base/error.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/dispatch.h"

namespace spillway::autograd {
namespace {

Tensor one(const Tensor& like) {
  Tensor seed = empty(like.shape(), like.dtype(), "seed gradient");
  if (!seed.raw()) return seed;
  kernels::for_dtype("tape", seed.dtype(), [&]<class T>(T) {
    const T one = narrow<T>(1);
    transfer(seed.raw(), reinterpret_cast<const std::byte*>(&one), sizeof one);
  });
  return seed;
}

thread_local int no_grad = 0;  // number of NoGrad objects alive on this thread
thread_local KeptOps* kept_ops = nullptr;

constexpr i64 kReleased = -2;  // the `parameter` of a slot whose op was released: no gradient can pass through such a slot

bool held_alone(const Tensor& t) { return t.storage().use_count() == 1; }

}  // namespace

void Variable::backward() const {
  require(tape != nullptr,
          "[backward] expected a variable that depends on a recorded input, got a constant: none of its inputs is on a tape");
  tape->backward(*this);
}

i32 Backward::wanted(int input) const {
  const i32 id = inputs_.at(static_cast<size_t>(input));
  if (id < 0 || part_ == Part::whole) return id;
  const bool parameter = tape_.slots_[static_cast<size_t>(id)].parameter >= 0;
  return parameter == (part_ == Part::weight) ? id : -1;
}

bool Backward::needs(int input) const { return wanted(input) >= 0; }

bool Backward::again() const { return part_ == Part::weight && tape_.has_inputs(inputs_, false); }

Tensor Backward::target(int input) {
  const i32 id = wanted(input);
  require(id >= 0, "[backward] expected a call for an input that needs a gradient");
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
  if (!slot.gradient.defined()) {
    slot.gradient = tape_.new_gradient(slot);
    return slot.gradient;
  }
  addends_.emplace_back(id, empty(slot.shape, slot.gradient_dtype(), "gradient"));
  return addends_.back().second;
}

// Returns an undefined tensor for a parameter: its gradient stays in the sink's memory, and the tape adds further gradients to it.
Tensor Backward::take_others(int input) {
  const i32 id = wanted(input);
  require(id >= 0, "[backward] expected a call for an input that needs a gradient");
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
  return slot.parameter >= 0 ? Tensor() : std::exchange(slot.gradient, Tensor());
}

void Backward::pass(int input, Tensor gradient) {
  const i32 id = wanted(input);
  require(id >= 0, "[backward] expected a call for an input that needs a gradient");
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
  require(gradient.shape() == slot.shape && gradient.is_contiguous(),
          "[backward] expected a contiguous gradient of the shape of the input");
  const bool fresh = slot.parameter >= 0 && !slot.gradient.defined();
  // a parameter's gradient must be in the sink's memory, so it is copied there and never replaced by another tensor
  if (fresh || gradient.dtype() != slot.gradient_dtype()) {
    kernels::copy(gradient, target(input));
  } else if (!slot.gradient.defined()) {
    slot.gradient = std::move(gradient);
  } else {
    addends_.emplace_back(id, std::move(gradient));
  }
}

Tensor Backward::saved(SavedTensor ticket) const {
  Tape::Saved& saved = tape_.saved_.at(static_cast<size_t>(ticket.ticket));
  if (saved.at_door) {
    saved.tensor = tape_.door_->unpack(saved.packed);
    saved.packed = saved.tensor.storage()->version();
    saved.at_door = false;
  }
  return saved.tensor;
}

// Adds further gradients to the first gradient of each slot. If the first gradient was
// passed on and another tensor refers to its memory, the sum goes to a new tensor.
void Backward::finish() {
  for (auto& [id, addend] : addends_) {
    Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
    if (slot.parameter >= 0 || held_alone(slot.gradient)) {
      kernels::accumulate(slot.gradient, addend);
    } else {
      Tensor sum = empty(slot.shape, slot.gradient_dtype(), "gradient");
      kernels::add(slot.gradient, addend, sum);
      slot.gradient = std::move(sum);
    }
    addend = {};
  }
}

i32 Tape::new_slot(const Tensor& value) {
  slots_.push_back({value.shape(), value.dtype(), {}, 0, -1, 0});
  return static_cast<i32>(slots_.size()) - 1;
}

Tensor Tape::new_gradient(Slot& slot) {
  if (slot.parameter < 0) return empty(slot.shape, slot.gradient_dtype(), "gradient");
  require(sink_ != nullptr, "[tape] expected a GradientSink to receive the gradient of a parameter: the tape was made without one");
  Tensor target = sink_->target(static_cast<u32>(slot.parameter), slot.use, slot.shape, slot.gradient_dtype());
  require(target.shape() == slot.shape && target.dtype() == slot.gradient_dtype() && target.is_contiguous(),
          "[tape] expected the sink to return a target of the requested shape and type");
  return target;
}

Variable Tape::input(Tensor value) {
  const i32 slot = new_slot(value);
  return {std::move(value), this, slot};
}

Variable Tape::parameter(Tensor value, u32 parameter, u8 use) {
  const auto [entry, fresh] = parameters_.try_emplace({parameter, use}, -1);
  if (fresh) {
    entry->second = new_slot(value);
    slots_.back().parameter = parameter;
    slots_.back().use = use;
  }
  return {std::move(value), this, entry->second, true};
}

// Counts one op that contributes to a gradient as finished. After the last such op, a parameter's gradient is handed to the sink.
void Tape::contributed(i32 id) {
  Slot& slot = slots_[static_cast<size_t>(id)];
  if (--slot.pending > 0 || slot.parameter < 0 || !slot.gradient.defined()) return;
  slot.gradient = {};
  sink_->done(static_cast<u32>(slot.parameter), slot.use);
}

void Tape::seed(const Variable& y, Tensor dy) {
  require(y.tape == this && y.slot >= 0, "[tape] backward() expects a variable that is on this tape");
  require(deferred_.empty(), "[tape] backward() expects that backward_weight() of the previous backward pass has been called");
  if (!dy.defined()) {
    require(y.value.elems() == 1, "[tape] backward() without a gradient expects a variable of one element");
    dy = one(y.value);
  }
  const Slot& seeded = slots_[static_cast<size_t>(y.slot)];  // shape and dtype come from the slot, since y.value may no longer be resident
  require(dy.shape() == seeded.shape && dy.dtype() == seeded.dtype && dy.is_contiguous(),
          "[tape] expected a contiguous gradient of the shape and dtype of the variable");
  slots_[static_cast<size_t>(y.slot)].gradient = std::move(dy);
}

// Checks the saved tensors from which y was computed. Other saved tensors are not checked, as in PyTorch.
void Tape::check_unmodified(const Variable& y) const {
  if (std::ranges::none_of(saved_, &Saved::modified)) return;
  std::vector<bool> reached(slots_.size());
  reached[static_cast<size_t>(y.slot)] = true;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!reached[static_cast<size_t>(node->output)]) continue;
    for (const i32 ticket : node->tickets) {
      const Saved& saved = saved_[static_cast<size_t>(ticket)];
      if (!saved.modified()) continue;
      throw Error(ErrorCode::usage,
                  "[backward] one of the variables needed for gradient computation has been modified by an inplace operation: the " +
                      std::string(to_string(saved.tensor.dtype())) + " " + to_string(saved.tensor.shape()) + " that " + node->op +
                      " saved in the forward pass has been overwritten since. Call backward() before the tensor is changed, or change a "
                      "copy of it");
    }
    for (const i32 input : node->inputs) {
      if (input >= 0) reached[static_cast<size_t>(input)] = true;
    }
  }
}

Tape::Node Tape::take_last() {
  Node node = std::move(nodes_.back());
  nodes_.pop_back();
  node.gradient = std::exchange(slots_[static_cast<size_t>(node.output)].gradient, Tensor());
  return node;
}

bool Tape::has_inputs(const std::vector<i32>& inputs, bool parameters) const {
  return std::ranges::any_of(inputs, [&](i32 id) { return id >= 0 && (slots_[static_cast<size_t>(id)].parameter >= 0) == parameters; });
}

void Tape::run(const Node& node, Backward::Part part) {
  if (!node.gradient.defined()) return;
  Backward step(*this, part, node.inputs, node.gradient);
  node.backward(step);
  step.finish();
  if (OpClock* clock = OpClock::current()) clock->ran(node.op);
  if (const AnomalyGuard* guard = AnomalyGuard::current(); guard && guard->checks_backward()) check(node, step);
}

void Tape::check(const Node& node, const Backward& step) const {
  AnomalyGuard::Made made{node.op, node.layer, {}, node.gradient, {}};
  for (size_t input = 0; input < node.inputs.size(); ++input) {
    const i32 id = step.wanted(static_cast<int>(input));
    if (id >= 0) made.gradients.emplace_back(input, slots_[static_cast<size_t>(id)].gradient);
  }
  for (const i32 ticket : node.tickets) {
    const Saved& saved = saved_[static_cast<size_t>(ticket)];
    if (!saved.at_door) made.saved.push_back(saved.tensor);
  }
  AnomalyGuard::current()->check_gradients(made);
}

void Tape::release(const Node& node) {
  for (i32 ticket : node.tickets) {
    Saved& saved = saved_[static_cast<size_t>(ticket)];
    if (saved.at_door) door_->unpack(saved.packed);
    saved_bytes_ -= saved.counted_bytes;
    saved = {};
  }
  for (i32 slot : node.inputs) {
    if (slot >= 0) contributed(slot);
  }
}

void Tape::backward(const Variable& y, Tensor dy) {
  KeptOps* const keep = KeptOps::current();
  std::vector<bool> reached, alive;
  const auto mark = [&](std::vector<bool>& marks, const std::vector<i32>& from) {
    marks.assign(slots_.size(), false);
    for (const i32 slot : from) marks[static_cast<size_t>(slot)] = true;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!marks[static_cast<size_t>(node->output)]) continue;
      for (const i32 input : node->inputs) {
        if (input >= 0) marks[static_cast<size_t>(input)] = true;
      }
    }
  };
  if (keep != nullptr) {
    mark(reached, {y.slot});
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (reached[slot] && slots_[slot].parameter == kReleased)
        throw Error(ErrorCode::usage,
                    "[backward] Trying to backward through the graph a second time: expected operations that no earlier backward() has "
                    "released, got some that one has: compute the loss again, or call the earlier one as backward(retain_graph=True)");
    }
  }
  seed(y, std::move(dy));
  check_unmodified(y);
  if (keep != nullptr) {
    for (Slot& slot : slots_) slot.pending = 0;
    for (const Node& node : nodes_) {
      if (!reached[static_cast<size_t>(node.output)]) continue;
      for (const i32 input : node.inputs) {
        if (input >= 0) ++slots_[static_cast<size_t>(input)].pending;
      }
    }
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (!reached[static_cast<size_t>(node->output)]) continue;
      node->gradient = std::exchange(slots_[static_cast<size_t>(node->output)].gradient, Tensor());
      run(*node, Backward::Part::whole);
      node->gradient = {};
      for (const i32 input : node->inputs) {
        if (input >= 0) contributed(input);
      }
    }
    mark(alive, keep->alive());
    std::erase_if(nodes_, [&](const Node& node) {
      const auto output = static_cast<size_t>(node.output);
      if (reached[output] ? keep->all() : alive[output]) return false;
      release(node);
      slots_[output].parameter = kReleased;
      return true;
    });
    keep->set_left(!nodes_.empty());
    return;
  }
  while (!nodes_.empty()) {
    const Node node = take_last();
    run(node, Backward::Part::whole);
    release(node);
  }
  saved_.clear();
}

void Tape::backward_input(const Variable& y, Tensor dy) {
  seed(y, std::move(dy));
  check_unmodified(y);
  while (!nodes_.empty()) {
    Node node = take_last();
    if (has_inputs(node.inputs, false)) run(node, Backward::Part::input);
    if (node.gradient.defined() && has_inputs(node.inputs, true)) {
      deferred_.push_back(std::move(node));
    } else {
      release(node);
    }
  }
}

void Tape::backward_weight() {
  for (Node& waiting : deferred_) {
    const Node node = std::exchange(waiting, {});
    run(node, Backward::Part::weight);
    release(node);
  }
  deferred_.clear();
  saved_.clear();
}

Tensor Tape::take_gradient(const Variable& x) {
  require(x.tape == this && x.slot >= 0, "[tape] expected a variable that is on this tape");
  return std::exchange(slots_[static_cast<size_t>(x.slot)].gradient, Tensor());
}

KeptOps::KeptOps(std::vector<i32> alive, bool all) : alive_(std::move(alive)), all_(all), outer_(kept_ops) { kept_ops = this; }
KeptOps::~KeptOps() { kept_ops = outer_; }
KeptOps* KeptOps::current() { return kept_ops; }

NoGrad::NoGrad() { ++no_grad; }
NoGrad::~NoGrad() { --no_grad; }

Recorder::Recorder(std::span<const Variable> inputs, const char* op) : op_(op) {
  if (AnomalyGuard::current()) guarded_.assign(inputs.begin(), inputs.end());
  if (no_grad > 0) return;
  for (const Variable& v : inputs) {
    if (!v.needs_gradient()) continue;
    require(tape_ == nullptr || tape_ == v.tape, "[recorder] expected all inputs of an op on the same tape");
    tape_ = v.tape;
  }
  for (const Variable& v : inputs) inputs_.push_back(v.slot);
}

SavedTensor Recorder::save(const Variable& v) {
  if (!tape_) return {};
  Tape::Saved saved;
  if (tape_->door_ && !v.weight) {
    saved.packed = tape_->door_->pack(v.value);
    saved.at_door = true;
  } else {
    saved.tensor = v.value;
    saved.packed = v.value.defined() ? v.value.storage()->version() : 0;
  }
  if (!v.weight) saved.counted_bytes = v.value.bytes();
  tape_->saved_bytes_ += saved.counted_bytes;
  tape_->saved_.push_back(std::move(saved));
  tickets_.push_back(static_cast<i32>(tape_->saved_.size()) - 1);
  return {tickets_.back()};
}

Variable Recorder::output(Tensor value, BackwardFunction backward) {
  if (OpClock* clock = OpClock::current()) clock->ran(op_);
  std::string layer;
  if (AnomalyGuard* guard = AnomalyGuard::current()) layer = guard->check_output(op_, value, guarded_, infinities_);
  if (!tape_) return value;
  const i32 slot = tape_->new_slot(value);
  for (i32 input : inputs_) {
    if (input >= 0) ++tape_->slots_[static_cast<size_t>(input)].pending;
  }
  tape_->nodes_.push_back({std::move(inputs_), slot, std::move(tickets_), std::move(backward), {}, op_, std::move(layer)});
  return {std::move(value), tape_, slot};
}

}  // namespace spillway::autograd
