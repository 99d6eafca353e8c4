// One rank at work: executes a plan's Programs over a model, its state at rest and its resources. Owned and driven by one thread; its lanes
// are its own. Whatever the placement, the numbers are the same bits.
#pragma once
#include <functional>
#include <optional>

#include "device/arena.h"
#include "parallel/accumulator.h"
#include "parallel/block_runner.h"
#include "parallel/executor.h"
#include "parallel/stepper.h"

namespace spillway::parallel {

/// Numbers of one optimizer step.
struct StepResult {
  double loss = 0;       // mean over all counted targets, before the update
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // the norm was not finite: no update
  bool clipped = false;
};

struct StepSettings {
  Update update;  // gradient_scale is filled in
  double gradient_clipping = 1;
  RandomKey random;
};

class Rank {
 public:
  /// Allocates all planned memory; weights are zero until load(). The plan and the model must outlive the rank.
  Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources);
  ~Rank();

  /// Fills every parameter: `source` writes elements [begin, begin + out.size()) of one.
  using Source = std::function<void(const nn::Parameter&, i64 begin, std::span<double> out)>;
  void load(const Source& source);

  /// One optimizer step. `load_batch` is called once, on the data lane, with this rank's device memory in force.
  StepResult train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings);
  /// Sum of token losses of one micro-batch (Mode::evaluate).
  double evaluate(const MicroBatch& batch);
  /// Logits of one position, row by row [B, V], widened to fp64.
  std::vector<double> logits(const MicroBatch& batch, i64 position);

  /// Device memory in force, for making micro-batches outside train_step.
  const Stream& input_stream() const { return input_stream_; }
  ModelState& state() { return state_; }
  const Plan& plan() const { return plan_; }
  /// Of the last step's head and tail, one Timing an instruction.
  const std::vector<Timing>& head_timings() const { return head_timings_; }
  const std::vector<Timing>& tail_timings() const { return tail_timings_; }
  bool last_tail_was_commit() const { return last_tail_was_commit_; }

 private:
  void perform(const Instruction& i);
  void fetch(const Instruction& i);
  void evict(const Instruction& i);
  void backward(const Instruction& i);
  void add_tied(const Instruction& i);
  void reduce(const Instruction& i);
  void fill_group(u16 group, std::byte* base);
  void drop_group(u16 group);
  void run_forward(const MicroBatch& batch, nn::Mode mode, i64 position);
  std::byte* at(const Slot& slot) { return moving_.data() + slot.offset; }
  /// The accumulator of (group, use): in its slot, or resident.
  std::byte* gradient(const Slot& slot, GroupUse use);
  i64 group_bytes(u16 group) const { return plan_.layout.groups[group].elems * size_of(plan_.scheduling.dtype); }

  const nn::Sequential& model_;
  const Plan& plan_;
  ModelState state_;
  Allocation moving_, activation_slab_;
  Arena activations_;
  const Stream stream_, input_stream_;
  BlockRunner runner_;
  Accumulator accumulator_;
  Stepper stepper_;
  std::vector<std::vector<double>> square_sums_;  // by group, tile

  // Of the step under way.
  const std::function<StepBatch()>* load_batch_ = nullptr;
  StepBatch batch_;
  StepSettings settings_;
  std::vector<MicroBatch> forward_batch_;
  std::vector<Timing> head_timings_, tail_timings_;
  bool last_tail_was_commit_ = false;
};

}  // namespace spillway::parallel
