#include "parallel/rank.h"

#include <cmath>

#include "base/error.h"
#include "device/copy.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "optim/adamw_gpu.h"
#include "parallel/gradient_rounding.h"
#include "parallel/stopwatch.h"

namespace spillway::parallel {
namespace {

Tensor flat_view(std::byte* data, i64 elems, DType dtype, Device device) {
  auto storage = Storage::vacant(device, elems * size_of(dtype));
  storage->fill(data);
  return Tensor(std::move(storage), 0, Shape{elems}, dtype);
}

}  // namespace

namespace {

Device device_of(const Plan& plan, const Resources& resources) { return plan.on_gpu() ? Device::cuda(resources.gpu) : Device::cpu(); }

std::vector<std::unique_ptr<GpuQueue>> make_queues(Device device) {
  std::vector<std::unique_ptr<GpuQueue>> queues;
  for (int lane = 0; device.is_cuda() && lane < kLanes; ++lane) queues.push_back(std::make_unique<GpuQueue>(device));
  return queues;
}

}  // namespace

Rank::Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources)
    : model_(model),
      plan_(plan),
      state_(plan, resources),
      moving_(resources.device->allocate(plan.moving_slab_bytes, "weights and gradients in motion")),
      spill_(resources.host->allocate(plan.spill_slab_bytes, "activations spilled")),
      activation_slab_(resources.device->allocate(plan.activation_slab_bytes, "activations")),
      sums_(resources.device->allocate(plan.sums_bytes, "norm")),
      fetched_(resources.host->allocate(plan.bounce_bytes, "between nvme and the GPU")),
      evicted_(resources.host->allocate(plan.bounce_bytes, "between nvme and the GPU")),
      activations_(activation_slab_.data(), plan.activation_slab_bytes),
      queues_(make_queues(device_of(plan, resources))),
      stream_{device_of(plan, resources), resources.threads, &activations_, queue(Lane::compute)},
      input_stream_{stream_.device, resources.threads, resources.device, queue(Lane::data)},
      host_stream_{Device::cpu(), resources.threads, &MemoryPool::heap()},
      beside_stream_{stream_.device, plan.on_gpu() ? resources.threads : nullptr, resources.device, queue(Lane::optimizer)},
      runner_(model, plan.outputs),
      accumulator_(plan.layout, plan.scheduling.format.gradient),
      stepper_(plan, state_),
      data_ranks_(resources.data_ranks),
      pipeline_ranks_(resources.pipeline_ranks) {
  const Pipeline& pipeline = plan.scheduling.pipeline;
  require(pipeline.ranks == 1 || (pipeline_ranks_ && pipeline_ranks_->size() == pipeline.ranks && pipeline_ranks_->rank() == pipeline.rank),
          "[rank] the plan has pipeline ranks, but the communicator is not theirs");
  require(alone() || (data_ranks_ && data_ranks_->size() == sharding().ranks && data_ranks_->rank() == sharding().rank),
          "[rank] the plan has data-parallel ranks, but the communicator is not theirs");
  for (const i64 tiles : plan.layout.model_tiles) square_sums_.emplace_back(static_cast<size_t>(tiles));
  if (plan.training)
    snapshot_queue_.emplace(*resources.host, static_cast<int>(plan.queue_buffers), plan.queue_buffer_bytes, "checkpoint queue");
  show_resident_weights();
}

Rank::~Rank() {
  for (const auto& p : model_.parameters) {
    if (p->storage->resident()) p->storage->drop();
  }
}

// What stays on the device is seen where its generation lies.
void Rank::show_resident_weights() {
  for (const Group& g : plan_.layout.groups) {
    if (!g.held() || plan_.weights_move(g)) continue;
    if (model_.parameters[g.segments[0].parameter]->storage->resident()) drop_group(g.id);
    fill_group(g.id, state_.weights(g.id).view(whole(g), state_.generation()).data());
  }
}

void Rank::fill_group(u16 group, std::byte* base) {
  for (const Segment& s : plan_.layout.groups[group].segments) {
    model_.parameters[s.parameter]->storage->fill(base + s.begin * size_of(format().weight));
  }
}

void Rank::drop_group(u16 group) {
  for (const Segment& s : plan_.layout.groups[group].segments) model_.parameters[s.parameter]->storage->drop();
}

void Rank::load(const Source& source, const MomentSource& moments) {
  for (const Group& g : plan_.layout.groups) {
    state_.fill(g.id, [&](TileRange range, std::span<std::byte> weights, std::span<std::byte> state) {
      stream_.run(range.count(), [&](i64 tile, int) {
        fill_tile(g, range.begin + tile, source, moments, weights.data() + tile * format().weight_tile_bytes(),
                  state.empty() ? nullptr : state.data() + tile * format().state_tile_bytes());
      });
    });
  }
}

// Without a state (nothing is trained) the master goes no further than its weight.
void Rank::fill_tile(const Group& group, i64 tile, const Source& source, const MomentSource& moments, std::byte* weight, std::byte* state) {
  std::vector<double> values(3 * kTileElems, 0);
  const auto part = [&](optim::StatePart which) { return std::span(values).subspan(static_cast<size_t>(which) * kTileElems, kTileElems); };
  const i64 from = tile * kTileElems;
  for_segments(group, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
    if (!s) return;
    const nn::Parameter& p = *model_.parameters[s->parameter];
    const auto piece = [&](optim::StatePart which) {
      return part(which).subspan(static_cast<size_t>(begin - from), static_cast<size_t>(end - begin));
    };
    source(p, begin - s->begin, piece(optim::StatePart::master));
    for (const auto which : {optim::StatePart::m, optim::StatePart::v}) {
      if (moments) moments(p, which, begin - s->begin, piece(which));
    }
  });
  std::vector<std::byte> unused(state ? 0 : static_cast<size_t>(format().state_tile_bytes()));
  const optim::TileValues<double> all{part(optim::StatePart::master), part(optim::StatePart::m), part(optim::StatePart::v)};
  optim::write_tile(format(), all, weight, state ? state : unused.data());
}

// On a GPU every instruction is done when it returns, as on a CPU.
double Rank::perform(const Instruction& i) {
  if (queues_.empty()) return carry_out(i);
  const GpuQueue& queue = *queues_[static_cast<size_t>(i.lane)];
  const Stream lane{stream_.device, stream_.threads, input_stream_.memory, queue.handle()};
  const StreamScope scope(lane);
  const double waited_us = carry_out(i);
  queue.wait();
  return waited_us;
}

double Rank::carry_out(const Instruction& i) {
  switch (i.op) {
    case Op::Step:
      return step(i);
    case Op::Fetch:
    case Op::Evict: {
      std::optional<StreamScope> all_threads;
      if (i.lane == Lane::compute) all_threads.emplace(stream_);
      return i.op == Op::Fetch ? fetch(i) : evict(i);
    }
    case Op::Gather:
      return microseconds_of([&] { gather(i); });
    case Op::Exchange:
      return microseconds_of([&] { exchange(i); });
    case Op::SendActivation:
    case Op::SendGradient:
    case Op::SendTied:
      return send(i);
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
    case Op::ReceiveTied:
      return receive(i);
    case Op::Land:
      return microseconds_of([&] { i.group == kNone ? stepper_.drain() : stepper_.land(i.group); });
    case Op::Commit:
      return microseconds_of([&] { commit(); });
    default:
      compute(i);
      return 0;
  }
}

void Rank::compute(const Instruction& i) {
  switch (i.op) {
    case Op::Load:
      return load_batches();
    case Op::Forward: {
      const StreamScope scope(stream_);
      runner_.forward(i, memory(i));
      return count_host(i);
    }
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
      return backward(i);
    case Op::Release:
      return drop_group(i.group);
    case Op::Accumulate:
    case Op::AddTied:
      return add_gradients(i);
    case Op::Reduce:
      return reduce(i);
    case Op::AgreeNorm:
      return agree();
    case Op::Publish:
      return publish();
    default:
      return;
  }
}

void Rank::load_batches() {
  {
    const StreamScope scope(input_stream());
    batch_ = (*load_batch_)();
  }
  const StreamScope scope(input_stream_);
  for (MicroBatch& m : batch_.micro_batches) {
    if (!plan_.on_gpu()) break;
    for (Tensor* t : {&m.tokens_BT, &m.targets_BT, &m.positions_BT}) *t = to_current_device(*t, "tokens");
  }
  if (!alone()) data_ranks_->all_reduce(std::as_writable_bytes(std::span(&batch_.counted_targets, 1)), DType::int64, Reduction::sum).wait();
  const double factor = 1.0 / static_cast<double>(batch_.counted_targets);
  const bool fp64 = format().weight == DType::f64;
  runner_.begin(batch_.micro_batches, nn::Mode::train, settings_.random, fp64 ? factor : static_cast<float>(factor));
}

// What a computing instruction itself reads from host memory and copies there.
void Rank::count_host(const Instruction& i) {
  offload::Traffic& traffic = state_.traffic();
  constexpr auto kHost = static_cast<size_t>(Tier::host);
  traffic.read_bytes[kHost] += i.read_bytes[kHost];
  traffic.written_bytes[kHost] += i.written_bytes[kHost];
}

TileRange Rank::activation_tile(const Instruction& i) const {
  const i64 tile = i.micro_batch % plan_.live[i.block];
  return {tile, tile + 1};
}

double Rank::fetch(const Instruction& i) {
  if (i.what == What::activations) return state_.read(state_.activations(i.block), activation_tile(i), bytes(i.out));
  offload::Blob& blob = i.what == What::weights ? state_.weights(i.group) : state_.gradients(i.group, i.use);
  const bool through_host = plan_.on_gpu() && blob.tier() == Tier::nvme;
  const double moving_us = through_host ? fetch_to_gpu(blob, i.tiles, bytes(i.out)) : state_.read(blob, i.tiles, bytes(i.out));
  if (i.what == What::weights && !weights_split(plan_.placement, plan_.scheduling, i.group)) fill_group(i.group, at(i.out));
  return moving_us;
}

double Rank::evict(const Instruction& i) {
  if (i.what == What::activations) return state_.write(state_.activations(i.block), activation_tile(i), bytes(i.in));
  offload::Blob& blob = state_.gradients(i.group, i.use);
  const auto from = bytes(i.in).first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes()));
  return plan_.on_gpu() && blob.tier() == Tier::nvme ? evict_from_gpu(blob, i.tiles, from) : state_.write(blob, i.tiles, from);
}

double Rank::fetch_to_gpu(offload::Blob& blob, TileRange tiles, std::span<std::byte> into) {
  const i64 step = plan_.bounce_bytes / blob.tile_bytes();
  double moving_us = 0;
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    const TileRange some{t, std::min(tiles.end, t + step)};
    const std::span bounce(fetched_.data(), static_cast<size_t>(some.count() * blob.tile_bytes()));
    moving_us += state_.read(blob, some, bounce);
    transfer(into.data() + (t - tiles.begin) * blob.tile_bytes(), bounce.data(), std::ssize(bounce));
  }
  return moving_us;
}

double Rank::evict_from_gpu(offload::Blob& blob, TileRange tiles, std::span<const std::byte> from) {
  const i64 step = plan_.bounce_bytes / blob.tile_bytes();
  double moving_us = 0;
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    const TileRange some{t, std::min(tiles.end, t + step)};
    const std::span bounce(evicted_.data(), static_cast<size_t>(some.count() * blob.tile_bytes()));
    transfer(bounce.data(), from.data() + (t - tiles.begin) * blob.tile_bytes(), std::ssize(bounce));
    moving_us += state_.write(blob, some, bounce);
  }
  return moving_us;
}

std::byte* Rank::gradient(const Slot& slot, GroupUse use) {
  if (slot.bytes > 0) return at(slot);
  return state_.gradients(use.group, use.use).view(whole(plan_.layout.groups[use.group]), state_.generation()).data();
}

void Rank::backward(const Instruction& i) {
  const StreamScope scope(stream_);
  const auto& uses = plan_.layout.blocks[i.block];
  for (size_t g = 0; makes_weight_gradients(i.op) && g < uses.size(); ++g) {
    if (!plan_.layout.groups[uses[g].group].frozen) accumulator_.place(uses[g], gradient(i.gradients[g], uses[g]), i.first);
  }
  runner_.backward(i, accumulator_, memory(i));
  count_host(i);
  accumulator_.finish();
}

// Slots hold the tiles named alone, what is resident all of them.
std::byte* Rank::gradient_tiles(const Slot& slot, GroupUse use, TileRange tiles) {
  if (slot.bytes > 0) return at(slot);
  return state_.gradients(use.group, use.use).view(tiles, state_.generation()).data();
}

void Rank::add_gradients(const Instruction& i) {
  const StreamScope scope(stream_);
  const auto view = [&](const Slot& slot, u8 use) {
    return flat_view(gradient_tiles(slot, {i.group, use}, i.tiles), i.tiles.count() * kTileElems, format().gradient, stream_.device);
  };
  if (i.tiles.count() > 0) kernels::accumulate(view(i.out, 0), view(i.in, i.use));
}

void Rank::reduce(const Instruction& i) {
  if (i.tiles.count() == 0) return;
  const StreamScope scope(stream_);
  const GroupUse use{i.group, 0};
  const bool leaves = i.in.bytes > 0 && plan_.placement.gradients[i.group] != Tier::nvme;
  std::byte* base = gradient_tiles(i.in, use, i.tiles);
  std::byte* home = leaves ? gradient_tiles({}, use, i.tiles) : nullptr;
  const std::span<double> sums =
      std::span(square_sums_[i.group]).subspan(static_cast<size_t>(i.tiles.begin), static_cast<size_t>(i.tiles.count()));
  if (plan_.on_gpu()) {
    require(!plan_.scheduling.round_gradients, "[reduce] rounded gradients on a GPU: not built");
    auto* device_sums = reinterpret_cast<double*>(sums_.data());
    optim::tile_square_sums_on_gpu(base, format().gradient, i.tiles.count(), device_sums);
    transfer(reinterpret_cast<std::byte*>(sums.data()), sums_.data(), std::ssize(sums) * static_cast<i64>(sizeof(double)));
    if (leaves) transfer(home, base, i.tiles.count() * kTileElems * size_of(format().gradient));
  } else if (plan_.scheduling.round_gradients) {
    const DType resting = plan_.resting_gradient(use);
    round_gradient(base, resting, sums);
    if (leaves) copy_past_caches(home, base, i.tiles.count() * kTileElems * size_of(resting));
  } else {
    sum_squares(base, home, sums);
  }
  count_host(i);
}

// A tile that goes home does so while it is in the cache.
void Rank::sum_squares(const std::byte* base, std::byte* home, std::span<double> sums) const {
  const bool fp64 = format().gradient == DType::f64;
  const i64 tile_bytes = kTileElems * size_of(format().gradient);
  stream_.run(std::ssize(sums), [&](i64 tile, int) {
    const auto sum = [&](const auto* elements) { return optim::tile_square_sum(std::span(elements, static_cast<size_t>(kTileElems))); };
    const std::byte* from = base + tile * tile_bytes;
    sums[static_cast<size_t>(tile)] = fp64 ? sum(reinterpret_cast<const double*>(from)) : sum(reinterpret_cast<const float*>(from));
    if (home) copy_past_caches(home + tile * tile_bytes, from, tile_bytes);
  });
}

double Rank::step(const Instruction& i) {
  if (steps_ == Steps::idle) return 0;
  const StreamScope scope(steps_ == Steps::beside_compute ? beside_stream_ : stream_);
  const auto gradient = i.in.bytes > 0 ? bytes(i.in) : std::span<std::byte>();
  return stepper_.step(plan_.layout.buckets[i.bucket], i.tiles, update_, step_from_, gradient);
}

// A head whose deferred Steps had nothing to do has nothing to commit.
void Rank::commit() {
  stepper_.drain();
  if (steps_ != Steps::idle) state_.commit(step_from_ + 1, record_);
}

void Rank::publish() {
  state_.publish();
  if (plan_.slots(Tier::device) > 1) show_resident_weights();
}

// Readers wait for each group's Step, so they may look for the new generation from the start.
void Rank::begin_deferred() {
  update_ = *deferred_;
  deferred_.reset();
  step_from_ = state_.generation();
  publish();
}

void Rank::settle() {
  if (!deferred_) return;
  begin_deferred();
  const Program& deferring = plan_.train_when_clipping ? *plan_.train_when_clipping : plan_.train;
  run_list(deferring.deferred);
  if (snapshot_) snapshot_->step_ended();
}

Snapshot& Rank::begin_snapshot(Snapshot::Save save, double patience_s) {
  settle();
  require(!snapshot_, "[rank] the snapshot before has not ended");
  snapshot_.emplace(plan_, state_, *snapshot_queue_, std::move(save), patience_s);
  stepper_.keep_for(&*snapshot_);
  return *snapshot_;
}

void Rank::end_snapshot() {
  stepper_.keep_for(nullptr);
  snapshot_.reset();
}

std::vector<Timing> Rank::run_list(const List& list, Steps steps) {
  steps_ = steps;
  return execute(
      list, [this](const Instruction& i) { return perform(i); }, [this](const std::exception_ptr& e) { tell_peers(e); });
}

// Which Program, and what its Steps do: nothing, when nothing was deferred; or an update that hopes not to be clipped.
void Rank::begin_step(const StepSettings& settings) {
  settings_ = settings;
  program_ = plan_.train_when_clipping && !clip_record_.speculate() ? &*plan_.train_when_clipping : &plan_.train;
  if (program_->overlap != OptimizerOverlap::forward) settle();
  step_from_ = state_.generation();
  update_ = settings.update;
  update_.random = settings.random;
  update_.gradient_scale = 1;
}

StepResult Rank::judge(const StepSettings& settings, double& factor) const {
  double squares = 0;
  for (const auto& sums : square_sums_) {
    for (double s : sums) squares += s;
  }
  StepResult result;
  result.loss = loss_sum_ / static_cast<double>(batch_.counted_targets);
  result.grad_norm = std::sqrt(squares);
  result.skipped = !std::isfinite(result.grad_norm);
  factor = optim::clip_factor(result.grad_norm, settings.gradient_clipping);
  result.clipped = !result.skipped && factor < 1;
  result.redo = result.clipped && program_->overlap == OptimizerOverlap::backward;
  return result;
}

StepResult Rank::train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings) {
  require(plan_.training, "[rank] train_step under a plan without training");
  load_batch_ = &load_batch;
  begin_step(settings);
  const bool deferring = program_->overlap == OptimizerOverlap::forward;
  const Steps steps = deferring && !deferred_ ? Steps::idle : Steps::beside_compute;
  if (deferred_) begin_deferred();
  head_begin_ = std::chrono::steady_clock::now();
  head_timings_ = run_list(program_->head, steps);
  double factor = 1;
  const StepResult result = judge(settings, factor);
  batch_ = {};
  update_ = settings.update;
  update_.random = settings.random;
  update_.gradient_scale = factor;
  if (settings.record) record_ = settings.record(result);
  step_from_ = state_.generation();
  clip_record_.add(result.clipped);
  if (deferring && !result.skipped) deferred_ = update_;
  tail_ = result.skipped ? &program_->skip : result.redo ? &program_->redo : &program_->commit;
  tail_begin_ = std::chrono::steady_clock::now();
  tail_timings_ = run_list(*tail_);
  if (snapshot_) snapshot_->step_ended();
  return result;
}

void Rank::run_forward(const MicroBatch& batch, nn::Mode mode, i64 position) {
  settle();
  forward_batch_ = {batch};
  if (plan_.on_gpu()) {
    const StreamScope scope(input_stream_);
    MicroBatch& m = forward_batch_.front();
    for (Tensor* t : {&m.tokens_BT, &m.targets_BT, &m.positions_BT}) *t = to_current_device(*t, "tokens");
  }
  runner_.begin(forward_batch_, mode, {}, 1, position);
  run_list(plan_.forward.head);
}

double Rank::evaluate(const MicroBatch& batch) {
  run_forward(batch, nn::Mode::evaluate, 0);
  if (has_last_block()) runner_.take_output(0);
  forward_batch_.clear();
  double loss_sum = runner_.loss_sum();
  tell_pipeline_ranks(std::as_writable_bytes(std::span(&loss_sum, 1)));
  return loss_sum;
}

std::vector<double> Rank::logits(const MicroBatch& batch, i64 position) {
  run_forward(batch, nn::Mode::generate, position);
  Tensor out = has_last_block() ? runner_.take_output(0) : Tensor();
  if (out.defined() && plan_.on_gpu()) {
    const StreamScope scope(stream_);
    out = to_host(out);
  }
  forward_batch_.clear();
  i64 count = out.defined() ? out.elems() : 0;
  tell_pipeline_ranks(std::as_writable_bytes(std::span(&count, 1)));
  std::vector<double> wide(static_cast<size_t>(count));
  for (size_t i = 0; out.defined() && i < wide.size(); ++i)
    wide[i] = out.dtype() == DType::f64 ? out.data<double>()[i] : out.data<float>()[i];
  tell_pipeline_ranks(std::as_writable_bytes(std::span(wide)));
  return wide;
}

}  // namespace spillway::parallel
