// Audit compares what the plan predicted with what was measured in the steps: times by phase, bytes moved and memory. It
// also says which resource bounded the steps and what would make them faster. The trainer adds each step and prints the
// audit at the end of the run. The first two steps are a warm-up and count only if there is no later step. Not thread-safe.
#pragma once
#include <string>
#include <vector>

#include "trainer/node/busy.h"
#include "trainer/plan/cost_model.h"
#include "trainer/plan/phases.h"

namespace spillway::trainer {

/// StepSample holds the measurements of one step, and what was predicted for the step.
struct StepSample {
  double seconds = 0;
  parallel::Account account;
  Phases phases;
  DiskUse disk;
  parallel::TierBytes moved, planned;
  double meeting_s = 0;                 // seconds of the step in collectives, including waits for slower ranks
  const StepCost* predicted = nullptr;  // predicted cost of a step with the same instruction lists
};

struct AuditRow {
  std::string what;
  double predicted = 0, measured = 0;
  bool bytes = false;  // true if the compared values are bytes, false if they are seconds
};

/// MemoryAudit holds the planned and the peak memory of the whole run, in bytes.
struct MemoryAudit {
  std::array<i64, offload::kTiers> planned{}, peak{};
  i64 predicted_process = 0, process = 0;  // memory of the whole process; `process` is 0 if it was not measured
};

/// Levers holds facts about the plan. From them the audit derives its advice on what would make a step faster.
struct Levers {
  bool bf16 = false, on_gpu = false;
  // split_master_left is set if bf16 weights have fp32 master copies, so that --master-weights split would
  // save bytes. low_moments_left is set if the moments are fp32, so that --moments bf16 would save bytes.
  bool split_master_left = false, low_moments_left = false;
  int state_arrays = 2;  // number of optimizer state arrays that --moments bf16 would round
  bool weights_on_nvme = false;
  i64 stripes = 0;               // number of --nvme paths
  i64 spilled_state_bytes = 0;   // bytes of optimizer state on nvme
  i64 spilled_bytes = 0;         // bytes of weights and gradients on nvme
  double disk_bytes_per_s = 0;   // expected rate of the disk for the step's mix of reads and writes
  double break_even_tokens = 0;  // tokens per step from which on computing hides the nvme traffic
  i64 tokens = 0;                // tokens per step
};

class Audit {
 public:
  void step(const StepSample& sample);
  bool empty() const { return steps_ == 0; }
  std::vector<AuditRow> rows(const MemoryAudit& memory) const;
  /// Returns a line such as "84 ms a step (97 ms planned): compute 96 %, memory 3 %": what the steps waited for, by share of their time.
  std::string brief() const;
  /// Returns a sentence such as "bound by disk (60 % of the step…); what would help: …".
  std::string verdict(const Levers& levers) const;
  parallel::Resource bound_by() const { return account_.bound_by(); }
  i64 steps() const { return steps_; }

 private:
  double mean(double sum) const { return sum / static_cast<double>(steps_ > 0 ? steps_ : 1); }
  i64 warmed_up_ = 0;  // number of warm-up steps that were not counted
  i64 steps_ = 0;
  double seconds_ = 0, predicted_s_ = 0;
  parallel::Account account_;
  Phases phases_, predicted_;
  DiskUse disk_;
  parallel::TierBytes moved_, planned_;
};

/// Returns the table, and below it a line if the machine was busy during the run.
std::string to_text(const std::vector<AuditRow>& rows, i64 steps, const Contention& contention);
/// Returns the facts about a chosen plan from which the audit derives its advice. `stripes` is the number of --nvme paths.
Levers levers_of(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates, i64 stripes);

}  // namespace spillway::trainer
