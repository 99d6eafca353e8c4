#include "parallel/block_runner.h"

#include "base/error.h"

namespace spillway::parallel {

void BlockRunner::begin(const std::vector<MicroBatch>& batches, nn::Mode mode, RandomKey random, double loss_factor, i64 logits_position) {
  live_.clear();
  activation_.clear();
  gradient_.clear();
  batches_ = &batches;
  mode_ = mode;
  random_ = random;
  loss_factor_ = loss_factor;
  logits_position_ = logits_position;
  loss_sum_ = 0;
}

nn::Context BlockRunner::context(u16 micro_batch, autograd::Tape* tape) const {
  nn::Context c;
  c.mode = mode_;
  c.batch = &batches_->at(micro_batch);
  c.tape = tape;
  c.random = random_;
  c.loss_factor = loss_factor_;
  c.logits_position = logits_position_;
  return c;
}

void BlockRunner::record(Live& live, Tensor input, u16 block, u16 micro_batch) {
  live.door = std::make_unique<SpillDoor>();
  live.tape = std::make_unique<autograd::Tape>(&sink_, live.door.get());
  if (input.defined())
    live.input = block > first_trained_block_ ? live.tape->input(std::move(input)) : autograd::Variable(std::move(input));
  live.output = model_.blocks[block]->forward(live.input, context(micro_batch, live.tape.get()));
  live.input.value = {};  // the tape holds what backward needs
}

Tensor BlockRunner::take_input(u16 block, u16 micro_batch) {
  if (block == 0) return {};
  const auto x = activation_.find(micro_batch);
  require(x != activation_.end(), "[block runner] a block ran before the one that feeds it");
  Tensor input = std::move(x->second);
  activation_.erase(x);
  return input;
}

void BlockRunner::forward(const Instruction& i, std::byte* spill) {
  Tensor input = take_input(i.block, i.micro_batch);
  Tensor output;
  const bool trained = mode_ == nn::Mode::train && i.block >= first_trained_block_;
  if (!trained || i.recompute) {
    const autograd::Variable x = input.defined() ? autograd::Variable(input) : autograd::Variable();
    output = model_.blocks[i.block]->forward(x, context(i.micro_batch, nullptr)).value;
    if (trained && i.recompute) keep_input(live_[{i.micro_batch, i.block}], std::move(input));
  } else {
    Live& live = live_[{i.micro_batch, i.block}];
    record(live, std::move(input), i.block, i.micro_batch);
    output = std::move(live.output.value);
  }
  const bool loss = mode_ != nn::Mode::generate && i.block + 1u == model_.blocks.size();
  if (loss) loss_sum_ += output.item();
  if (!loss || mode_ == nn::Mode::evaluate) activation_[i.micro_batch] = std::move(output);
  if (i.spill.bytes > 0) live_.at({i.micro_batch, i.block}).door->spill(spill);
}

// Block 0 has none.
void BlockRunner::keep_input(Live& live, Tensor input) {
  live.door = std::make_unique<SpillDoor>();
  if (input.defined()) live.kept_input = live.door->pack(std::move(input));
}

Tensor BlockRunner::take_kept_input(Live& live) { return live.kept_input ? live.door->unpack(*live.kept_input) : Tensor(); }

i64 BlockRunner::spillable_bytes(u16 block, u16 micro_batch) const {
  return block < first_trained_block_ ? 0 : live_.at({micro_batch, block}).door->spillable_bytes();
}

void BlockRunner::backward(const Instruction& i, autograd::GradientSink& sink, const std::byte* spill) {
  const auto at = live_.find({i.micro_batch, i.block});
  require(at != live_.end(), "[block runner] Backward of a block that was not run forward");
  Live live = std::move(at->second);
  live_.erase(at);
  if (i.spill.bytes > 0) live.door->restore(spill);
  if (i.recompute) {
    record(live, take_kept_input(live), i.block, i.micro_batch);
    live.output.value = {};
  }
  sink_.to = &sink;
  Tensor dy;
  if (i.block + 1u == model_.blocks.size()) {
    dy = empty(Shape{}, DType::f64, "loss gradient");
    if (dy.raw()) *dy.data<double>() = 1;
  } else {
    dy = std::move(gradient_.at(i.micro_batch));
    gradient_.erase(i.micro_batch);
  }
  live.tape->backward(live.output, std::move(dy));
  if (i.block > first_trained_block_) gradient_[i.micro_batch] = live.tape->take_gradient(live.input);
}

Tensor BlockRunner::take_output(u16 micro_batch) {
  Tensor output = std::move(activation_.at(micro_batch));
  activation_.erase(micro_batch);
  return output;
}

}  // namespace spillway::parallel
