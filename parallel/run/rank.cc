#include "parallel/run/rank.h"

#include <cmath>

#include "base/error.h"
#include "parallel/gpu/cpu_exchange.h"
#include "parallel/gpu/host_exchange.h"

namespace spillway::parallel {

Rank::Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources)
    : model_(model),
      plan_(plan),
      state_(plan, resources),
      moving_(resources.device->allocate(plan.moving_slab_bytes, "weights and gradients in motion")),
      spill_(resources.host->allocate(plan.spill_slab_bytes, "activations spilled")),
      activation_slab_(resources.device->allocate(plan.activation_slab_bytes, "activations")),
      activations_(activation_slab_.data(), plan.activation_slab_bytes),
      stepper_(plan, state_),
      device_(make_rank_device(plan, state_, stepper_, activations_, resources)),
      runner_(model, plan.outputs),
      accumulator_(plan.layout, plan.scheduling.format.gradient),
      data_ranks_(resources.data_ranks),
      peers_{resources.data_ranks, resources.pipeline_ranks},
      pipeline_ranks_(resources.pipeline_ranks) {
  const Pipeline& pipeline = plan.scheduling.pipeline;
  const Communicator* const others = resources.pipeline_ranks;
  require(pipeline.ranks == 1 || (others && others->size() == pipeline.ranks && others->rank() == pipeline.rank),
          "[rank] the plan has pipeline ranks, but the communicator is not theirs");
  require(alone() || (data_ranks_ && data_ranks_->size() == sharding().ranks && data_ranks_->rank() == sharding().rank),
          "[rank] the plan has data-parallel ranks, but the communicator is not theirs");
  require(!plan.gpu_to_gpu || resources.gpu_exchange,
          "[rank] the plan has GPUs talk to each other, but nothing is there that they talk over");
  if (!plan.gpu_to_gpu) own_exchange_ = make_exchange(*resources.host);
  exchange_ = plan.gpu_to_gpu ? resources.gpu_exchange : own_exchange_.get();
  for (const i64 tiles : plan.layout.model_tiles) square_sums_.emplace_back(static_cast<size_t>(tiles));
  if (plan.training)
    snapshot_queue_.emplace(*resources.host, static_cast<int>(plan.queue_buffers), plan.queue_buffer_bytes, "checkpoint queue");
  show_resident_weights();
}

std::unique_ptr<RankExchange> Rank::make_exchange(MemoryPool& host) {
  if (!plan_.on_gpu()) return std::make_unique<CpuExchange>(data_ranks_, pipeline_ranks_);
  return std::make_unique<HostExchange>(plan_, host, data_ranks_, pipeline_ranks_);
}

Rank::~Rank() {
  device_.lanes.reset();  // first: after an error work may stand on the queues that uses what goes now
  for (const auto& p : model_.parameters) {
    if (p->storage->resident()) p->storage->drop();
  }
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
  device_.lanes->begin(list);
  std::vector<Timing> timings = execute(
      list, [this](const Instruction& i) { return perform(i); }, [this](const std::exception_ptr& e) { tell_peers(e); });
  device_.lanes->end(timings);
  return timings;
}

// Which Program, and what its Steps do: nothing, when nothing was deferred; or an update that hopes not to be clipped.
void Rank::begin_step(const StepSettings& settings) {
  settings_ = settings;
  program_ = plan_.train_when_clipping && !clip_record_.speculate() ? &*plan_.train_when_clipping : &plan_.train;
  if (program_->overlap != OptimizerOverlap::forward) settle();
  step_from_ = state_.generation();
  update_ = settings.update;
  update_.random = settings.random;
  update_.gradient_scale = 1 / settings.loss_scale;
}

StepResult Rank::judge(const StepSettings& settings, double& factor) const {
  double squares = 0;
  for (const auto& sums : square_sums_) {
    for (double s : sums) squares += s;
  }
  StepResult result;
  result.loss = loss_sum_ / static_cast<double>(batch_.counted_targets);
  result.grad_norm = std::sqrt(squares) / settings.loss_scale;
  result.loss_scale = settings.loss_scale;
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
  update_.gradient_scale = factor / settings.loss_scale;
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
  {
    const StreamScope scope(device_.streams.inputs);
    device_.copies->take_in(forward_batch_.front());
  }
  runner_.begin(forward_batch_, mode, {}, 1, position);
  run_list(plan_.forward.head);
}

double Rank::evaluate(const MicroBatch& batch) {
  run_forward(batch, nn::Mode::evaluate, 0);
  if (plan_.layout.has_last_block()) runner_.take_output(0);
  forward_batch_.clear();
  double loss_sum = sum_losses();
  tell_pipeline_ranks(std::as_writable_bytes(std::span(&loss_sum, 1)));
  return loss_sum;
}

std::vector<double> Rank::logits(const MicroBatch& batch, i64 position) {
  run_forward(batch, nn::Mode::generate, position);
  Tensor out = plan_.layout.has_last_block() ? runner_.take_output(0) : Tensor();
  if (out.defined()) {
    const StreamScope scope(device_.streams.compute);
    out = device_.copies->hand_out(out);
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
