#include "parallel/run/rank.h"

#include <algorithm>

#include "base/error.h"

namespace spillway::parallel {
namespace {

// Returns the update with its gradient scale. `clip_factor` applies to gradients without the loss scale, so the gradient scale is divided
// by the loss scale.
Update update_of(const StepSettings& settings, double clip_factor) {
  Update update = settings.update;
  update.random = settings.random;
  update.gradient_scale = clip_factor / settings.loss_scale;
  return update;
}

}  // namespace

Rank::Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources)
    : model_(model), plan_(plan), work_(model, plan, resources), parts_(model, work_, step_), dispatcher_(work_, parts_) {
  if (plan.training)
    snapshot_queue_.emplace(*resources.host, static_cast<int>(plan.queue_buffers), plan.queue_buffer_bytes, "checkpoint queue");
  work_.weights.show_resident();
}

Rank::~Rank() {
  work_.device.lanes.reset();  // destroyed first, because after an error, work on the lanes' queues may still use the other members
  work_.weights.hide_all();
}

// Makes the previous step's update the deferred one. Every reader of weights waits for the deferred update of its group, so readers may be
// switched to the new generation (copy of the weights) before the list starts.
void Rank::begin_deferred() {
  step_.deferred = step_.own;
  waiting_ = Waiting::nothing;
  work_.weights.publish();
}

void Rank::settle() {
  if (waiting_ == Waiting::nothing) return;
  const List& list = program_->settle_for(waiting_);
  begin_deferred();
  std::vector<Timing> timings = run_list(list);
  dispatcher_.end(timings);
  if (snapshot_) snapshot_->step_ended();
}

Snapshot& Rank::begin_snapshot(Snapshot::Save save, double patience_s) {
  settle();
  require(!snapshot_, "[rank] expected the previous snapshot to have ended");
  snapshot_.emplace(plan_, work_.state, *snapshot_queue_, std::move(save), patience_s);
  work_.stepper.keep_for(&*snapshot_);
  return *snapshot_;
}

void Rank::end_snapshot() {
  work_.stepper.keep_for(nullptr);
  snapshot_.reset();
}

std::vector<Timing> Rank::run_list(const List& list, Steps steps) {
  step_.steps = steps;
  std::vector<Timing> timings = dispatcher_.run(list);
  planned_bytes_ += moved_bytes(list);
  return timings;
}

// Chooses the Program (list of instructions) of the step: the one that updates speculatively or, while clipping is frequent, the one that
// defers the updates. Both leave the gradients of all groups in the same places, so if all updates of a step wait, either Program can
// make them. If only some wait, they are made before the Program changes.
void Rank::begin_step(const StepSettings& settings) {
  step_.settings = settings;
  const Program& program = plan_.train_when_clipping && !clip_record_.speculate() ? *plan_.train_when_clipping : plan_.train;
  if (&program != program_ && waiting_ == Waiting::deferred) settle();
  program_ = &program;
}

// Runs the head, the list with which a step begins. Optimizer updates inside the backward assume that the gradients are not clipped.
void Rank::run_head() {
  head_ = &program_->head_for(waiting_);
  if (waiting_ != Waiting::nothing) begin_deferred();
  step_.own.update = update_of(step_.settings, 1);
  step_.own.from = work_.state.generation();
  head_begin_ = std::chrono::steady_clock::now();
  head_timings_ = run_list(*head_, Steps::beside_compute);
}

// Computes the step's result, and the update that remains to be applied, at the end of this step or in the next one.
StepResult Rank::judge_step() {
  double factor = 1;
  const StepResult result = parts_.numbers.judge(step_, program_->overlap, factor);
  step_.batch = {};
  step_.own.update = update_of(step_.settings, factor);
  if (step_.settings.record) step_.own.record = step_.settings.record(result);
  clip_record_.add(result.clipped);
  if (!result.skipped) waiting_ = program_->leaves(result.clipped);
  return result;
}

// Runs the tail, the list with which a step ends. The times of the head, measured on the device, are
// collected only after the tail was launched, so that the GPU goes on with the tail without a pause.
void Rank::run_tail(const StepResult& result) {
  tail_ = result.skipped || waiting_ == Waiting::all ? &program_->skip : &program_->commit;
  tail_begin_ = std::chrono::steady_clock::now();
  tail_timings_ = run_list(*tail_);
  dispatcher_.end(head_timings_);
  dispatcher_.end(tail_timings_);
  if (snapshot_) snapshot_->step_ended();
}

StepResult Rank::train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings) {
  require(plan_.training, "[rank] expected train_step() only with a plan that trains");
  step_.load_batch = &load_batch;
  begin_step(settings);
  run_head();
  const StepResult result = judge_step();
  run_tail(result);
  return result;
}

void Rank::run_forward() {
  std::vector<Timing> timings = run_list(plan_.forward.head);
  dispatcher_.end(timings);
}

double Rank::evaluate(const MicroBatch& batch) {
  settle();
  parts_.computing.begin_without_training(batch, nn::Mode::evaluate, 0);
  run_forward();
  double loss_sum = parts_.computing.take_loss();
  work_.ranks.tell_pipeline(std::as_writable_bytes(std::span(&loss_sum, 1)));
  return loss_sum;
}

std::vector<double> Rank::logits(const MicroBatch& batch, i64 position) {
  settle();
  parts_.computing.begin_without_training(batch, nn::Mode::generate, position);
  run_forward();
  return take_logits();
}

std::vector<double> Rank::next_logits(const MicroBatch& batch, i64 begin) {
  parts_.computing.begin_with_cache(batch, begin);
  run_forward();
  return take_logits();
}

std::vector<double> Rank::take_logits() {
  const Tensor out = parts_.computing.take_output();
  i64 count = out.defined() ? out.elems() : 0;
  work_.ranks.tell_pipeline(std::as_writable_bytes(std::span(&count, 1)));
  std::vector<double> wide(static_cast<size_t>(count));
  if (out.defined() && out.dtype() == DType::f64) {
    std::copy_n(out.data<double>(), count, wide.begin());
  } else if (out.defined()) {
    std::copy_n(out.data<float>(), count, wide.begin());
  }
  work_.ranks.tell_pipeline(std::as_writable_bytes(std::span(wide)));
  return wide;
}

}  // namespace spillway::parallel
