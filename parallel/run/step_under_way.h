// One optimizer step: what is asked of it, what its instructions read while it is under way, and what came of it. Values.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/blocks/block_runner.h"
#include "parallel/state/stepper.h"
#include "tensor/batch.h"

namespace spillway::parallel {

/// Numbers of one optimizer step.
struct StepResult {
  double loss = 0;       // mean over all counted targets, before the update
  double grad_norm = 0;  // before clipping, of the unscaled gradients
  double loss_scale = 1;
  i64 counted_targets = 0;      // of all ranks
  i64 data_tokens = 0;          // likewise: trained on, without padding
  bool skipped = false;         // the norm was not finite: no update
  bool own_loss_finite = true;  // of this rank's samples, where it computes their loss
  /// Where skipped: ids of this pipeline rank's parameters in whose tiles gradients are not finite, ascending. Backward comes to the last
  /// of the model's first.
  std::vector<u32> not_finite;
  bool clipped = false;
  bool redo = false;  // what was stepped inside the backward was in vain, and is stepped again
};

struct StepSettings {
  Update update;  // gradient_scale is filled in
  double gradient_clipping = 1;
  double loss_scale = 1;  // a power of two, on all ranks: gradients hold so many times what they are
  RandomKey random;
  /// Set: an op whose result is not finite ends the step with Error(numbers) that names it (autograd/anomaly.h), and begins with this. What
  /// flows back while `loss_scale` is above 1 is no such: the overflow is the scale's, and a smaller one is tried.
  std::optional<std::string> detect_anomaly;
  /// Set: the time of each op of the blocks that it computes is added, until the step has ended. Of a CPU's.
  OpTimesOf* op_times = nullptr;
  /// What a restart shall know of this step beside the state itself; asked for once the step's numbers are known.
  std::function<std::string(const StepResult&)> record;
};

enum class Steps { alone, beside_compute };

/// What Steps apply, the generation they read, and the record that the next one is committed with.
struct UpdateUnderWay {
  Update update;
  u64 from = 0;
  std::string record;
};

/// Written between lists, but for the batch, which the data lane loads.
struct StepUnderWay {
  const std::function<StepBatch()>* load_batch = nullptr;
  StepBatch batch;
  StepSettings settings;
  Steps steps = Steps::alone;
  UpdateUnderWay own;       // this step's
  UpdateUnderWay deferred;  // the step before's, where some of it waited

  const UpdateUnderWay& of(const Instruction& i) const { return i.deferred ? deferred : own; }
};

}  // namespace spillway::parallel
