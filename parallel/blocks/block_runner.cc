#include "parallel/blocks/block_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "device/transfer.h"

namespace spillway::parallel {
namespace {

void hand_on(const Tensor& tensor, std::byte* to) {
  if (tensor.raw()) put_transfer(to, tensor.raw(), tensor.bytes());
}

// Returns the common beginning of the names of the block's parameters, such as " (model.layers.3)", or "" if there is none.
std::string name_of(const nn::Module& block) {
  const std::vector<nn::ParameterUse> uses = block.parameters();
  if (uses.empty()) return "";
  std::string common = uses.front().parameter->name;
  for (const nn::ParameterUse& use : uses)
    common.resize(static_cast<size_t>(std::ranges::mismatch(common, use.parameter->name).in1 - common.begin()));
  common.resize(std::min(common.rfind('.'), common.size()));
  return common.empty() ? "" : " (" + common + ")";
}

}  // namespace

void BlockRunner::begin(const std::vector<MicroBatch>& batches, nn::Mode mode, RandomKey random, double loss_factor, i64 logits_position,
                        nn::KeyValueCache* cache) {
  live_.clear();
  activation_.clear();
  gradient_.clear();
  router_load_.clear();
  batches_ = &batches;
  mode_ = mode;
  random_ = random;
  loss_factor_ = loss_factor;
  logits_position_ = logits_position;
  cache_ = cache;
  losses_.assign(batches.size(), 0);
}

nn::Context BlockRunner::context(const Instruction& i, autograd::Tape* tape) const {
  nn::Context c;
  c.mode = mode_;
  c.batch = &batches_->at(i.micro_batch);
  c.tape = tape;
  c.random = random_;
  c.loss_factor = loss_factor_;
  c.logits_position = logits_position_;
  c.cache = cache_;
  c.block = i.block;
  if (const auto load = router_load_.find(i.micro_batch); load != router_load_.end()) c.router_load_2E = load->second;
  return c;
}

std::optional<autograd::AnomalyGuard> BlockRunner::guard(const Instruction& i) const {
  if (!anomalies_ || mode_ != nn::Mode::train) return std::nullopt;
  const std::string where = fmt::format("{}, block {} of {}{}, micro-batch {}", *anomalies_, i.block + 1, model_.blocks.size(),
                                        name_of(*model_.blocks[i.block]), i.micro_batch + 1);
  return std::optional<autograd::AnomalyGuard>(std::in_place, autograd::AnomalyGuard::Options{where, backward_anomalies_});
}

std::optional<autograd::OpClock> BlockRunner::clock(const Instruction& i) const {
  if (!op_times_ || mode_ != nn::Mode::train) return std::nullopt;
  return std::optional<autograd::OpClock>(std::in_place, (*op_times_)[i.op]);
}

void BlockRunner::record(Live& live, Tensor input, const Instruction& i) {
  live.door = std::make_unique<SpillDoor>();
  live.tape = std::make_unique<autograd::Tape>(&sink_, live.door.get());
  if (input.defined())
    live.input = i.block > first_trained_block_ ? live.tape->input(std::move(input)) : autograd::Variable(std::move(input));
  nn::Context c = context(i, live.tape.get());
  c.recomputing = i.op != Op::Forward;
  c.keep_logits = i.keep_logits;
  live.output = model_.blocks[i.block]->forward(live.input, c);
  live.input.value = {};  // the block's input is dropped, because the tape holds all tensors that the backward needs
}

// Copies a tensor that another rank has sent out of the buffer in which it arrived, so that the buffer is free for the next message as
// soon as the block has run.
Tensor BlockRunner::received(u16 block, const std::byte* from) const {
  Shape shape = outputs_.at(block).shape;
  const Tensor& tokens_BT = batches_->front().tokens_BT;
  shape.set(0, batches_->front().targets_BT.size(0));
  if (tokens_BT.defined()) shape.set(1, tokens_BT.size(1));
  Tensor copy = empty(shape, outputs_[block].dtype, "from another rank");
  if (copy.raw()) put_transfer(copy.raw(), from, copy.bytes());
  return copy;
}

Tensor BlockRunner::take_input(const Instruction& i, const BlockMemory& memory) {
  if (i.block == 0) return {};
  if (i.in.bytes > 0) return received(static_cast<u16>(i.block - 1), memory.in);
  const auto x = activation_.find(i.micro_batch);
  require(x != activation_.end(), "[block runner] expected the block's input, got none: the block before it has not run yet");
  Tensor input = std::move(x->second);
  activation_.erase(x);
  return input;
}

void BlockRunner::forward(const Instruction& i, const BlockMemory& memory) {
  const auto guarded = guard(i);
  const auto timed = clock(i);
  if (i.block == 0 && mode_ == nn::Mode::train && model_.router_loss_experts > 0)
    router_load_[i.micro_batch] = zeros({2, model_.router_loss_experts}, DType::f64, "load of experts");
  Tensor input = take_input(i, memory);
  Tensor output;
  const bool trained = mode_ == nn::Mode::train && i.block >= first_trained_block_;
  if (!trained || i.recompute) {
    const autograd::Variable x = input.defined() ? autograd::Variable(input) : autograd::Variable();
    output = model_.blocks[i.block]->forward(x, context(i, nullptr)).value;
    if (trained && i.recompute) keep_input(live_[{i.micro_batch, i.block}], std::move(input));
  } else {
    Live& live = live_[{i.micro_batch, i.block}];
    record(live, std::move(input), i);
    output = std::move(live.output.value);
  }
  const bool loss = mode_ != nn::Mode::generate && i.block + 1u == model_.blocks.size();
  if (loss && memory.loss) {
    put_transfer(reinterpret_cast<std::byte*>(memory.loss), output.raw(), sizeof(double));
  } else if (loss) {
    losses_[i.micro_batch] = output.item();
  }
  if (i.out.bytes > 0) {
    hand_on(output, memory.out);
  } else if (!loss || mode_ == nn::Mode::evaluate) {
    activation_[i.micro_batch] = std::move(output);
  }
  if (i.spill.bytes > 0) live_.at({i.micro_batch, i.block}).door->spill(memory.spill);
}

// Keeps a block's input, so that the backward can run the block's forward again. Block 0 has no input.
void BlockRunner::keep_input(Live& live, Tensor input) {
  live.door = std::make_unique<SpillDoor>();
  if (input.defined()) live.kept_input = live.door->pack(std::move(input));
}

Tensor BlockRunner::take_kept_input(Live& live) { return live.kept_input ? live.door->unpack(*live.kept_input) : Tensor(); }

i64 BlockRunner::spillable_bytes(u16 block, u16 micro_batch) const {
  return block < first_trained_block_ ? 0 : live_.at({micro_batch, block}).door->spillable_bytes();
}

Tensor BlockRunner::take_output_gradient(const Instruction& i, const BlockMemory& memory) {
  if (i.in.bytes > 0) return received(i.block, memory.in);
  if (i.block + 1u == model_.blocks.size()) {
    // The gradient of the loss lies in CPU memory, so that the code that reads it does not have to wait for a GPU.
    const Stream cpu{.memory = &MemoryPool::heap()};
    std::optional<StreamScope> scope;
    if (Stream::current().device.works_as_cuda()) scope.emplace(cpu);  // also in the dry run of a plan for a GPU
    constexpr double kOne = 1;
    return tensor_of<double>(std::span(&kOne, 1), Shape{});
  }
  const auto dy = gradient_.find(i.micro_batch);
  require(dy != gradient_.end(),
          "[block runner] expected the gradient of the block's output, got none: the block after it has not run backward yet");
  Tensor gradient = std::move(dy->second);
  gradient_.erase(dy);
  return gradient;
}

void BlockRunner::backward(const Instruction& i, autograd::GradientSink& sink, const BlockMemory& memory) {
  if (i.op == Op::BackwardWeight) return backward_weight(i, sink);
  const auto at = live_.find({i.micro_batch, i.block});
  require(at != live_.end(), "[block runner] expected the block to run Forward before Backward");
  Live& live = at->second;
  const auto guarded = guard(i);
  const auto timed = clock(i);
  if (i.spill.bytes > 0) live.door->restore(memory.spill);
  if (i.recompute) {
    record(live, take_kept_input(live), i);
    live.output.value = {};
  }
  sink_.to = &sink;
  Tensor dy = take_output_gradient(i, memory);
  i.op == Op::Backward ? live.tape->backward(live.output, std::move(dy)) : live.tape->backward_input(live.output, std::move(dy));
  if (i.block > first_trained_block_) {
    Tensor dx = live.tape->take_gradient(live.input);
    if (i.out.bytes > 0) {
      hand_on(dx, memory.out);
    } else {
      gradient_[i.micro_batch] = std::move(dx);
    }
  }
  if (i.block == first_trained_block_) router_load_.erase(i.micro_batch);
  if (!live.tape->has_weight_part()) live_.erase(at);
}

void BlockRunner::backward_weight(const Instruction& i, autograd::GradientSink& sink) {
  const auto at = live_.find({i.micro_batch, i.block});
  require(at != live_.end() && at->second.tape && at->second.tape->has_weight_part(),
          "[block runner] expected the block to run BackwardInput before BackwardWeight");
  sink_.to = &sink;
  const auto guarded = guard(i);
  const auto timed = clock(i);
  at->second.tape->backward_weight();
  live_.erase(at);
}

Tensor BlockRunner::take_output(u16 micro_batch) {
  Tensor output = std::move(activation_.at(micro_batch));
  activation_.erase(micro_batch);
  return output;
}

}  // namespace spillway::parallel
