#include "parallel/run/computing.h"

#include <array>

#include "base/error.h"
#include "kernels/accumulate.h"

namespace spillway::parallel {
namespace {

Tensor flat_view(std::byte* data, i64 elems, DType dtype, Device device) {
  auto storage = Storage::vacant(device, elems * size_of(dtype));
  storage->fill(data);
  return Tensor(std::move(storage), 0, Shape{elems}, dtype);
}

}  // namespace

Computing::Computing(const nn::Sequential& model, Workplace& work, StepUnderWay& step)
    : work_(work), step_(step), runner_(model, work.plan.outputs), accumulator_(work.plan.layout, work.format().gradient) {
  if (work.plan.cache_positions == 0) return;
  const nn::KeyValueCache::Lies lies = cache_lies(work.plan.placement);
  Stream stream = lies == nn::KeyValueCache::Lies::here ? work.streams().compute : Stream();
  stream.memory = &work.memory.cache();
  cache_.emplace(stream, work.plan.micro_batch_size, work.plan.cache_positions, lies);
}

void Computing::load() {
  StepBatch& batch = step_.batch;
  {
    const StreamScope scope(work_.streams().made);
    batch = (*step_.load_batch)();
  }
  const StreamScope scope(work_.streams().inputs);
  work_.device.copies->take_in(batch.micro_batches);
  if (work_.ranks.has_data()) {
    std::array<i64, 2> sums{batch.counted_targets, batch.data_tokens};
    work_.ranks.data().all_reduce(std::as_writable_bytes(std::span(sums)), DType::int64, Reduction::sum).wait();
    batch.counted_targets = sums[0], batch.data_tokens = sums[1];
  }
  const double factor = 1.0 / static_cast<double>(batch.counted_targets);
  const bool fp64 = work_.format().weight == DType::f64;
  runner_.begin(batch.micro_batches, nn::Mode::train, step_.settings.random,
                (fp64 ? factor : static_cast<float>(factor)) * step_.settings.loss_scale);
  runner_.detect_anomalies(step_.settings.detect_anomaly, step_.settings.loss_scale <= 1);
  runner_.time_ops(step_.settings.op_times);
}

BlockMemory Computing::memory(const Instruction& i) const {
  return {work_.memory.at(i.spill), work_.memory.at(i.in), work_.memory.at(i.out), work_.device.sums->loss(i.micro_batch)};
}

void Computing::forward(const Instruction& i) {
  const StreamScope scope(work_.streams().compute);
  runner_.forward(i, memory(i));
  work_.count_host(i);
}

void Computing::backward(const Instruction& i) {
  const StreamScope scope(work_.streams().compute);
  const auto& uses = work_.plan.layout.blocks[i.block];
  for (size_t g = 0; makes_weight_gradients(i.op) && g < uses.size(); ++g) {
    if (!work_.plan.layout.groups[uses[g].group].frozen)
      accumulator_.place(uses[g], work_.memory.gradient(i.gradients[g], uses[g]), i.first);
  }
  runner_.backward(i, accumulator_, memory(i));
  work_.count_host(i);
  accumulator_.finish();
}

void Computing::add_gradients(const Instruction& i) {
  const StreamScope scope(work_.streams().compute);
  const auto view = [&](const Slot& slot, u8 use) {
    return flat_view(work_.memory.gradient(slot, {i.group, use}, i.tiles), i.tiles.count() * kTileElems, work_.format().gradient,
                     work_.streams().compute.device);
  };
  if (i.tiles.count() > 0) kernels::accumulate(view(i.out, 0), view(i.in, i.use));
}

void Computing::take_in(const MicroBatch& batch) {
  forward_batch_ = {batch};
  {
    const StreamScope scope(work_.streams().inputs);
    work_.device.copies->take_in(forward_batch_);
  }
  // Waits until the micro-batch is copied, because the instructions of the next list do not wait for this copy.
  if (const GpuQueue* queue = work_.queue(Lane::data)) queue->wait();
}

void Computing::begin_without_training(const MicroBatch& batch, nn::Mode mode, i64 position) {
  take_in(batch);
  runner_.begin(forward_batch_, mode, {}, 1, position);
}

void Computing::begin_with_cache(const MicroBatch& batch, i64 begin) {
  require(cache_.has_value(), "[rank] expected a plan with a key/value cache");
  cache_->seek(begin);
  take_in(batch);
  runner_.begin(forward_batch_, nn::Mode::generate, {}, 1, batch.tokens_BT.size(1) - 1, &*cache_);
}

double Computing::take_loss() {
  if (work_.plan.layout.has_last_block()) runner_.take_output(0);
  forward_batch_.clear();
  return loss_sum();
}

Tensor Computing::take_output() {
  Tensor out;
  if (work_.plan.layout.has_last_block()) {
    const StreamScope scope(work_.streams().compute);
    out = work_.device.copies->hand_out(runner_.take_output(0));
  }
  forward_batch_.clear();
  return out;
}

double Computing::loss_sum() {
  const StreamScope scope(work_.streams().compute);
  return work_.device.sums->loss_sum(runner_);
}

}  // namespace spillway::parallel
