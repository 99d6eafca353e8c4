#include "autograd/tape.h"

#include "base/error.h"
#include "kernels/accumulate.h"
#include "kernels/dispatch.h"

namespace spillway::autograd {
namespace {

Tensor one(const Tensor& like) {
  Tensor seed = empty(like.shape(), like.dtype(), "seed gradient");
  if (!seed.raw()) return seed;
  kernels::for_dtype("tape", seed.dtype(), [&]<class T>(T) { *seed.data<T>() = narrow<T>(1); });
  return seed;
}

bool held_alone(const Tensor& t) { return t.storage().use_count() == 1; }

}  // namespace

void Variable::backward() const {
  require(tape != nullptr, "[backward] the variable is a constant: no input of it was recorded on a tape");
  tape->backward(*this);
}

bool Backward::needs(int input) const { return tape_.nodes_[static_cast<size_t>(node_)].inputs.at(static_cast<size_t>(input)) >= 0; }

Tensor Backward::target(int input) {
  const i32 id = tape_.nodes_[static_cast<size_t>(node_)].inputs.at(static_cast<size_t>(input));
  require(id >= 0, "[backward] a target was asked for an input that needs no gradient");
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
  if (!slot.gradient.defined()) {
    slot.gradient = tape_.new_gradient(slot);
    return slot.gradient;
  }
  addends_.emplace_back(id, empty(slot.shape, slot.gradient_dtype(), "gradient"));
  return addends_.back().second;
}

void Backward::pass(int input, Tensor gradient) {
  const i32 id = tape_.nodes_[static_cast<size_t>(node_)].inputs.at(static_cast<size_t>(input));
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(id)];
  require(gradient.shape() == slot.shape && gradient.is_contiguous(),
          "[backward] a passed gradient must be contiguous and of the input's shape");
  const bool fresh = slot.parameter >= 0 && !slot.gradient.defined();
  if (fresh || gradient.dtype() != slot.gradient_dtype()) {  // a sink's memory is written, never aliased
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
    saved.at_door = false;
  }
  return saved.tensor;
}

// Adds what came second to what came first. A gradient that others hold (it was passed on) is not written: a new one takes its place.
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
  require(sink_ != nullptr, "[tape] a parameter's gradient has nowhere to go: the tape was made without a GradientSink");
  Tensor target = sink_->target(static_cast<u32>(slot.parameter), slot.use, slot.shape, slot.gradient_dtype());
  require(target.shape() == slot.shape && target.dtype() == slot.gradient_dtype() && target.is_contiguous(),
          "[tape] the sink's target has another shape or type than it was asked for");
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

// One op fewer will contribute to the slot; a parameter's last one hands the gradient over.
void Tape::contributed(i32 id) {
  Slot& slot = slots_[static_cast<size_t>(id)];
  if (--slot.pending > 0 || slot.parameter < 0 || !slot.gradient.defined()) return;
  slot.gradient = {};
  sink_->done(static_cast<u32>(slot.parameter), slot.use);
}

void Tape::backward(const Variable& y, Tensor dy) {
  require(y.tape == this && y.slot >= 0, "[tape] backward of a variable that is not on this tape");
  if (!dy.defined()) {
    require(y.value.elems() == 1, "[tape] backward without a gradient wants a variable of one element");
    dy = one(y.value);
  }
  const Slot& seeded = slots_[static_cast<size_t>(y.slot)];  // y.value may have been dropped
  require(dy.shape() == seeded.shape && dy.dtype() == seeded.dtype && dy.is_contiguous(),
          "[tape] the gradient must be contiguous and of the variable's shape and dtype");
  slots_[static_cast<size_t>(y.slot)].gradient = std::move(dy);
  while (!nodes_.empty()) {
    const i32 id = static_cast<i32>(nodes_.size()) - 1;
    Tensor gradient = std::exchange(slots_[static_cast<size_t>(nodes_.back().output)].gradient, Tensor());
    if (gradient.defined()) {
      Backward step(*this, id, std::move(gradient));
      nodes_.back().backward(step);
      step.finish();
    }
    const Node node = std::move(nodes_.back());
    nodes_.pop_back();
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
  saved_.clear();
}

Tensor Tape::take_gradient(const Variable& x) {
  require(x.tape == this && x.slot >= 0, "[tape] the gradient of a variable that is not on this tape");
  return std::exchange(slots_[static_cast<size_t>(x.slot)].gradient, Tensor());
}

Recorder::Recorder(std::span<const Variable> inputs) {
  for (const Variable& v : inputs) {
    if (!v.needs_gradient()) continue;
    require(tape_ == nullptr || tape_ == v.tape, "[recorder] inputs of one op lie on different tapes");
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
  }
  if (!v.weight) saved.counted_bytes = v.value.bytes();
  tape_->saved_bytes_ += saved.counted_bytes;
  tape_->saved_.push_back(std::move(saved));
  tickets_.push_back(static_cast<i32>(tape_->saved_.size()) - 1);
  return {tickets_.back()};
}

Variable Recorder::output(Tensor value, BackwardFunction backward) {
  if (!tape_) return value;
  const i32 slot = tape_->new_slot(value);
  for (i32 input : inputs_) {
    if (input >= 0) ++tape_->slots_[static_cast<size_t>(input)].pending;
  }
  tape_->nodes_.push_back({std::move(inputs_), slot, std::move(tickets_), std::move(backward)});
  return {std::move(value), tape_, slot};
}

}  // namespace spillway::autograd
