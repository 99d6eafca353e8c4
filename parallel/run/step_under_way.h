// Data of one optimizer step: its settings, what its instructions read while it runs, and its result. Plain values.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/blocks/block_runner.h"
#include "parallel/state/stepper.h"
#include "tensor/batch.h"

namespace spillway::parallel {

/// Result of one optimizer step.
struct StepResult {
  double loss = 0;       // mean over all targets that contribute to the loss, before the update
  double grad_norm = 0;  // norm of the unscaled gradients, before clipping
  double loss_scale = 1;
  i64 counted_targets = 0;      // targets that contribute to the loss, of all ranks
  i64 data_tokens = 0;          // tokens trained on, without padding, of all ranks
  bool skipped = false;         // the norm was not finite, so there was no update
  bool own_loss_finite = true;  // the loss of this rank's samples is finite, if it computes one
  /// If skipped: ids, ascending, of this pipeline rank's parameters with gradient tiles that are not finite. The backward reaches the
  /// parameter with the highest id first.
  std::vector<u32> not_finite;
  bool clipped = false;
  bool redo = false;  // the Steps done inside the backward are discarded and done again
};

struct StepSettings {
  Update update;  // the rank fills in gradient_scale
  double gradient_clipping = 1;
  double loss_scale = 1;  // a power of two, the same on all ranks; gradients are multiplied by it
  RandomKey random;
  /// If set, an op whose result is not finite ends the step with Error(numbers), which names the op and begins with this text
  /// (autograd/anomaly.h). Gradients are not checked while `loss_scale` is above 1: there an overflow is caused by the scale, and a smaller
  /// scale is tried.
  std::optional<std::string> detect_anomaly;
  /// If set, the time of each op of the blocks that this rank computes is added to it until the step has ended. CPU only.
  OpTimesOf* op_times = nullptr;
  /// Returns the text that a restart shall know of this step besides the state itself; called once the step's numbers are known.
  std::function<std::string(const StepResult&)> record;
};

enum class Steps { alone, beside_compute };

/// One update: what its Steps apply, the generation they read, and the record that is committed with the generation they write.
struct UpdateUnderWay {
  Update update;
  u64 from = 0;
  std::string record;
};

/// The step that is running. It is written only while no list runs, except the batch, which the data lane loads.
struct StepUnderWay {
  const std::function<StepBatch()>* load_batch = nullptr;
  StepBatch batch;
  StepSettings settings;
  Steps steps = Steps::alone;
  UpdateUnderWay own;       // this step's update
  UpdateUnderWay deferred;  // the previous step's update, if some of it was deferred

  const UpdateUnderWay& of(const Instruction& i) const { return i.deferred ? deferred : own; }
};

}  // namespace spillway::parallel
