// The first rank's choice of a plan, from which the other ranks make their own plans. So all ranks have one plan and differ only in the
// shards that each holds. Values.
#pragma once
#include <string>
#include <vector>

#include "app/plan/shares.h"
#include "parallel/plan/plan.h"

namespace spillway::app {

struct PlanChoice {
  parallel::Placement placement;
  int prefetch = 0;
  parallel::OptimizerOverlap overlap{};
  int deferred_sixteenths = 0;
  parallel::Order order{};
  int zero_stage = 0;
  std::vector<u16> begins;        // first block of each pipeline stage
  bool adaptive_overlap = false;
  i64 staging_buffers = 0;        // 0: the default
  Shares shares;
};

PlanChoice choice_of(const parallel::Plan& plan, const Shares& shares);
/// Puts the choice into a request that has the model, the layout, the batch and the rank already, and into `shares`. Throws Error(bug) if
/// the choice is for another model.
void apply_choice(PlanChoice choice, parallel::PlanRequest& request, Shares& shares);

/// Convert a choice to text for other ranks, and back.
std::string to_text(const PlanChoice& choice);
PlanChoice parse_choice(const std::string& text);

}  // namespace spillway::app
