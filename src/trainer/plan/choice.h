// PlanChoice describes the plan that the first rank chose, as a value that is sent to the other ranks. Every rank makes
// its own plan from it. As a result the plans of all ranks agree and differ only in the shards that each rank holds.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "trainer/plan/shares.h"

namespace spillway::trainer {

struct PlanChoice {
  parallel::Placement placement;
  int prefetch = 0;
  parallel::OptimizerOverlap overlap{};
  int deferred_sixteenths = 0;
  parallel::Order order{};
  int zero_stage = 0;
  std::vector<u16> begins;  // index of the first block of each pipeline stage
  bool adaptive_overlap = false, streams_steps = false;
  i64 staging_buffers = 0;  // number of buffers of the staging ring; 0: the default number
  Shares shares;
};

PlanChoice choice_of(const parallel::Plan& plan, const Shares& shares);
/// Copies the choice into `request` and `shares`. The model, the layout, the batch and the rank
/// must already be set in `request`. Throws Error(bug) if the choice was made for another model.
void apply_choice(PlanChoice choice, parallel::PlanRequest& request, Shares& shares);

/// to_text() converts a choice to text for other ranks; parse_choice() converts it back.
std::string to_text(const PlanChoice& choice);
PlanChoice parse_choice(const std::string& text);

}  // namespace spillway::trainer
