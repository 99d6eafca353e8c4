// What the plan promised beside what the steps did: times by phase, bytes moved, memory; what bounded the step, and what would help. Fed by
// the trainer with each step; printed at the end. The first two, which warm up, count only when there is no later one. One thread.
#pragma once
#include <string>
#include <vector>

#include "app/plan/cost_model.h"
#include "app/plan/phases.h"

namespace spillway::app {

struct StepSample {
  double seconds = 0;
  parallel::Account account;
  Phases phases;
  DiskUse disk;
  parallel::TierBytes moved, planned;
  double meeting_s = 0;                 // where ranks meet, and one that is ahead of the others waits
  const StepCost* predicted = nullptr;  // of the same head and tail; outlives the audit
};

struct AuditRow {
  std::string what;
  double predicted = 0, measured = 0;
  bool bytes = false;  // else seconds
};

/// Of the whole run.
struct MemoryAudit {
  std::array<i64, offload::kTiers> planned{}, peak{};
  i64 predicted_process = 0, process = 0;  // process 0: nobody measured it
};

/// What is known of the plan beside its figures, for what would help.
struct Levers {
  bool bf16 = false, on_gpu = false;
  bool split_master_left = false, low_moments_left = false;  // bf16 with fp32 masters; fp32 moments
  int state_arrays = 2;                                      // of the update rule
  bool weights_on_nvme = false;
  i64 stripes = 0;
  i64 spilled_state_bytes = 0;  // of the optimizer's, on nvme
  i64 spilled_bytes = 0;        // of weights and gradients there
  double disk_bytes_per_s = 0;  // expected of the disk for this mix
  double break_even_tokens = 0;
  i64 tokens = 0;
};

class Audit {
 public:
  void step(const StepSample& sample);
  bool empty() const { return steps_ == 0; }
  std::vector<AuditRow> rows(const MemoryAudit& memory) const;
  /// "disk: …; what would help: …".
  std::string verdict(const Levers& levers) const;
  parallel::Resource bound_by() const { return account_.bound_by(); }
  i64 steps() const { return steps_; }

 private:
  double mean(double sum) const { return sum / static_cast<double>(steps_ > 0 ? steps_ : 1); }
  i64 warmed_up_ = 0;  // steps left out
  i64 steps_ = 0;
  double seconds_ = 0, predicted_s_ = 0;
  parallel::Account account_;
  Phases phases_, predicted_;
  DiskUse disk_;
  parallel::TierBytes moved_, planned_;
};

std::string to_text(const std::vector<AuditRow>& rows, i64 steps);
/// Of a chosen plan.
Levers levers_of(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates, i64 stripes);

}  // namespace spillway::app
