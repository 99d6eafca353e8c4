// One rank at work: executes a plan's Programs over a model, its state at rest and its resources. Owned and driven by one thread; its lanes
// are its own. Whatever the placement, the numbers are the same bits.
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
  /// Allocates all planned memory; weights are zero until load(). The plan and the model must outlive the rank.
  Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources);
  ~Rank();

  /// Fills every parameter: `source` writes elements [begin, begin + out.size()) of one; `moments`, if given, those of the rule's arrays
  /// and of the average of the weights, else the arrays are zero and the average is the weights. Called from several threads at once.
  /// `bytes`, if given, is asked first for parameters without a state: it writes the same elements where they are stored as `dtype`, which
  /// then need no conversion, and returns false where they are not.
  using Source = std::function<void(const nn::Parameter&, i64 begin, std::span<double> out)>;
  using MomentSource = std::function<void(const nn::Parameter&, optim::StatePart, i64 begin, std::span<double> out)>;
  using ByteSource = std::function<bool(const nn::Parameter&, i64 begin, DType dtype, std::span<std::byte> out)>;
  void load(const Source& source, const MomentSource& moments = {}, const ByteSource& bytes = {});

  /// One optimizer step. `load_batch` is called once, on the data lane, with this rank's device memory in force. Where Steps are deferred
  /// the update is done by the next train_step or settle().
  StepResult train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings);
  /// Executes a deferred update: to be called before anything but the next train_step looks at state(). evaluate() and logits() do it.
  void settle();
  /// Hands out the state as it is now, settled, to `save` while training goes on; the snapshot before has ended.
  Snapshot& begin_snapshot(Snapshot::Save save, double patience_s = Snapshot::kPatient);
  /// Null: none begun since the last end_snapshot().
  Snapshot* snapshot() { return snapshot_ ? &*snapshot_ : nullptr; }
  /// What has not ended is given up.
  void end_snapshot();
  /// Shows the weights of the trained parameter of that id as they are now, settled, at most a tile of them at once, in f32 (f64 rounded):
  /// those that this rank saves, so that among all ranks each element is shown once. Called on threads [0, threads()) at once, in any
  /// order.
  using Visit = std::function<void(std::span<const float> weights, int thread)>;
  void visit(u32 parameter, const Visit& visit);
  int threads() const { return work_.streams().compute.thread_count(); }
  /// Sum of token losses of one micro-batch of this data-parallel rank (Mode::evaluate). All ranks call it together.
  double evaluate(const MicroBatch& batch);
  /// Logits of one position, row by row [B, V], widened to fp64. Likewise.
  std::vector<double> logits(const MicroBatch& batch, i64 position);
  /// The same of the batch's last position, under a plan with a key/value cache, which holds the positions before `begin` of calls before
  /// and takes in the batch's: rows as the plan has them, and as many positions as one of its pass_lengths.
  std::vector<double> next_logits(const MicroBatch& batch, i64 begin);

  /// Memory in force that the CPU writes, for making micro-batches outside train_step: the device's, or beside a GPU the host's.
  const Stream& input_stream() const { return work_.streams().made; }
  ModelState& state() { return work_.state; }
  /// To other pipeline ranks so far.
  i64 sent_bytes() const { return parts_.messages.bytes(); }
  /// Of all that crossed the data-parallel ranks so far.
  i64 exchanged_bytes() const { return parts_.meetings.bytes(); }
  /// What all lists run so far were to move.
  const TierBytes& planned_bytes() const { return planned_bytes_; }
  const Plan& plan() const { return plan_; }
  /// Of the last step: its Program, the head and the tail that were run (null: none), and one Timing an instruction.
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

  // Of the step under way.
  const Program* program_ = nullptr;
  const List *head_ = nullptr, *tail_ = nullptr;
  Waiting waiting_ = Waiting::nothing;  // what of the last step's own update is still to be done
  ClipRecord clip_record_;
  std::vector<Timing> head_timings_, tail_timings_;
  std::chrono::steady_clock::time_point head_begin_, tail_begin_;
  std::optional<offload::StagingRing> snapshot_queue_;
  std::optional<Snapshot> snapshot_;  // last: it reads the state
};

}  // namespace spillway::parallel
