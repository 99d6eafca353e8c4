// Holds the data of one optimizer step: its settings, what its instructions read while the step runs, and its result. Plain values.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/blocks/block_runner.h"
#include "parallel/state/stepper.h"
#include "tensor/batch.h"

namespace spillway::parallel {

/// Holds the result of one optimizer step.
struct StepResult {
  double loss = 0;       // mean loss of all targets that contribute to it, before the update
  double grad_norm = 0;  // norm of the gradients without the loss scale, before clipping
  double loss_scale = 1;
  i64 counted_targets = 0;      // number of targets on all ranks that contribute to the loss
  i64 data_tokens = 0;          // number of tokens on all ranks that were trained on, without padding
  bool skipped = false;         // true if the norm was not finite, so that there was no update
  bool own_loss_finite = true;  // false if this rank computes a loss and the loss of its own samples is not finite
  /// Lists, after a skipped step, the ids of this pipeline rank's parameters whose gradient has a tile that is
  /// not finite, in ascending order. The backward computes the gradient of the highest id first.
  std::vector<u32> not_finite;
  bool clipped = false;
  bool redo = false;  // true if the updates made inside the backward are discarded and will be made again
};

struct StepSettings {
  Update update;  // the optimizer's update, except gradient_scale, which the rank fills in
  double gradient_clipping = 1;
  double loss_scale = 1;  // factor by which gradients are multiplied in the backward: a power of two, the same on all ranks
  RandomKey random;
  /// If set, an op whose result is not finite ends the step with Error(numbers). The message names the op and begins with this text
  /// (autograd/anomaly.h). Gradients are not checked while `loss_scale` is above 1, because then the scale may be the cause of an overflow,
  /// and a smaller scale is tried.
  std::optional<std::string> detect_anomaly;
  /// If set, the times of all ops of the blocks that this rank computes are added to `*op_times` until the step has ended. With a CPU only.
  OpTimesOf* op_times = nullptr;
  /// Returns the text that a restart needs about this step besides the state itself. Called once loss and norm of the step are known.
  std::function<std::string(const StepResult&)> record;
};

enum class Steps { alone, beside_compute };

/// One update of the weights: the hyperparameters that the optimizer applies, the generation (complete copy of the state) that it reads,
/// and the record that is committed with the next generation.
struct UpdateUnderWay {
  Update update;
  u64 from = 0;
  std::string record;
};

/// Describes the step that is running. Its data is written only while no list runs, except for the batch, which the data thread loads.
struct StepUnderWay {
  const std::function<StepBatch()>* load_batch = nullptr;
  StepBatch batch;
  StepSettings settings;
  Steps steps = Steps::alone;
  UpdateUnderWay own;       // the update of this training step
  UpdateUnderWay deferred;  // the update of the previous training step, if a part of it was deferred

  const UpdateUnderWay& of(const Instruction& i) const { return i.deferred ? deferred : own; }
};

}  // namespace spillway::parallel
