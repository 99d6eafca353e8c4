// A Rank is one rank of a training run. It executes the instruction lists of a plan (its Programs) on a model, with the state that it
// stores and the resources that it is given. One thread owns and calls it; its other threads are internal. Results are bitwise the same,
// whichever tiers store the data.
#pragma once
#include <chrono>
#include <functional>
#include <optional>

#include "optim/tile_values.h"
#include "parallel/run/clip_record.h"
#include "parallel/run/dispatcher.h"

namespace spillway::parallel {

class Rank {
 public:
  /// Allocates all memory that the plan lists. Weights are zero until load(). The model and the plan must outlive the rank.
  Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources);
  ~Rank();

  /// Fills every parameter. `source` writes elements [begin, begin + out.size()) of one parameter. `moments`, if given, writes the elements
  /// of the optimizer's arrays and of the weight average in the same way; without it, the arrays become zero and the average becomes a copy
  /// of the weights. `bytes`, if given, is asked first for parameters without optimizer state. If their values are available as `dtype`, it
  /// writes them as raw bytes, which need no conversion; otherwise it returns false. All three are called from several threads at the same
  /// time.
  using Source = std::function<void(const nn::Parameter&, i64 begin, std::span<double> out)>;
  using MomentSource = std::function<void(const nn::Parameter&, optim::StatePart, i64 begin, std::span<double> out)>;
  using ByteSource = std::function<bool(const nn::Parameter&, i64 begin, DType dtype, std::span<std::byte> out)>;
  void load(const Source& source, const MomentSource& moments = {}, const ByteSource& bytes = {});

  /// Runs one optimizer step. Calls `load_batch` once, on the thread that loads data, with input_stream() as the current stream. If
  /// optimizer updates are deferred, the next train_step() or settle() applies the rest of them.
  StepResult train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings);
  /// Applies the rest of a deferred update. Must be called before state() is read, unless train_step() comes next. evaluate() and
  /// logits() call settle() themselves.
  void settle();
  /// Settles the state, and lets `save` read the present state while training continues. An earlier snapshot must have been ended.
  Snapshot& begin_snapshot(Snapshot::Save save, double patience_s = Snapshot::kPatient);
  /// Returns the current snapshot, or null if none was begun after the last end_snapshot().
  Snapshot* snapshot() { return snapshot_ ? &*snapshot_ : nullptr; }
  /// Ends the current snapshot. A save that is still running gets no more data.
  void end_snapshot();
  /// Calls `visit` with the current weights of the trained parameter with this id, at most one tile at a time, converted to f32 (f64 is
  /// rounded). No update may be deferred. Each rank visits only those weights that it saves, so that each element is visited on exactly one
  /// rank. `visit` is called concurrently and in any order, on threads with the numbers [0, threads()).
  using Visit = std::function<void(std::span<const float> weights, int thread)>;
  void visit(u32 parameter, const Visit& visit);
  int threads() const { return work_.streams().compute.thread_count(); }
  /// Returns the sum of the token losses of one micro-batch of this data-parallel rank
  /// (Mode::evaluate). evaluate() is a collective: all ranks must call it together.
  double evaluate(const MicroBatch& batch);
  /// Returns the logits of one position of each sequence of the batch, as [B, V], converted to fp64. logits() is a collective like
  /// evaluate().
  std::vector<double> logits(const MicroBatch& batch, i64 position);
  /// Returns the logits of the batch's last position. The plan must have a key/value cache. The cache holds the positions before `begin`
  /// from earlier calls, and the batch's positions are added to it. The batch must have as many sequences as the plan has, and its number
  /// of positions must be one of pass_lengths().
  std::vector<double> next_logits(const MicroBatch& batch, i64 begin);

  /// Returns a stream for making micro-batches outside of train_step(). The CPU can write its memory, which is device memory with a CPU and
  /// host memory with a GPU.
  const Stream& input_stream() const { return work_.streams().made; }
  ModelState& state() { return work_.state; }
  /// Returns the number of bytes sent to other pipeline ranks so far.
  i64 sent_bytes() const { return parts_.messages.bytes(); }
  /// Returns the total size of the weights and gradients that the data-parallel ranks have exchanged so far.
  i64 exchanged_bytes() const { return parts_.meetings.bytes(); }
  /// Returns the bytes that all lists that have run so far move according to the plan.
  const TierBytes& planned_bytes() const { return planned_bytes_; }
  const Plan& plan() const { return plan_; }
  /// The getters below describe the last step: its Program, its first and last list (null: none), and one Timing for each instruction.
  const Program& last_program() const { return *program_; }
  const List* last_head() const { return head_; }
  const List* last_tail() const { return tail_; }
  const std::vector<Timing>& head_timings() const { return head_timings_; }
  const std::vector<Timing>& tail_timings() const { return tail_timings_; }
  std::chrono::steady_clock::time_point head_begin() const { return head_begin_; }
  std::chrono::steady_clock::time_point tail_begin() const { return tail_begin_; }

 private:
  std::vector<Timing> run_list(const List& list, Steps steps = Steps::alone);
  void begin_step(const StepSettings& settings);
  void run_head();
  StepResult judge_step();
  void run_tail(const StepResult& result);
  void begin_deferred();
  void run_forward();
  std::vector<double> take_logits();

  const nn::Sequential& model_;
  const Plan& plan_;
  Workplace work_;
  StepUnderWay step_;
  RankParts parts_;
  Dispatcher dispatcher_;
  TierBytes planned_bytes_;

  // The members below describe the step that is running, or the last step if none is.
  const Program* program_ = nullptr;
  const List *head_ = nullptr, *tail_ = nullptr;
  Waiting waiting_ = Waiting::nothing;  // the optimizer updates of the last step that are still to be made
  ClipRecord clip_record_;
  std::vector<Timing> head_timings_, tail_timings_;
  std::chrono::steady_clock::time_point head_begin_, tail_begin_;
  std::optional<offload::StagingRing> snapshot_queue_;
  std::optional<Snapshot> snapshot_;  // the last member, because it reads the state and must be destroyed before it
};

}  // namespace spillway::parallel
