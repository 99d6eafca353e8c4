#include "trainer/plan/stage_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "parallel/proof/check.h"
#include "parallel/schedule/pipeline_split.h"
#include "trainer/plan/reasons.h"
#include "trainer/plan/search.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::PlanRequest;

PlanRequest of_rank(PlanRequest request, int pipeline_rank) {
  request.scheduling.pipeline.rank = pipeline_rank;
  return request;
}

int heaviest(const PlanRequest& base, const std::vector<u16>& rank_of) {
  std::vector<i64> elems;
  for (int p = 0; p < base.scheduling.pipeline.ranks; ++p) elems.push_back(restricted(base.layout, rank_of, p).elems());
  return static_cast<int>(std::ranges::max_element(elems) - elems.begin());
}

bool alike(const Plan& a, const Plan& b) {
  return a.train.overlap == b.train.overlap && a.train_when_clipping.has_value() == b.train_when_clipping.has_value();
}

// Returns `wishes` with some options fixed: options that must be equal on all pipeline ranks get the values of `plan`.
PlacementSettings like(PlacementSettings wishes, const Plan& plan) {
  wishes.zero_stage = plan.scheduling.sharding.stage;
  wishes.prefetch = plan.scheduling.prefetch;
  wishes.order = plan.scheduling.order;
  const bool adaptive = plan.train_when_clipping.has_value();
  if (!adaptive)
    wishes.overlap = static_cast<OptimizerOverlap>(static_cast<int>(OptimizerOverlap::none) + static_cast<int>(plan.train.overlap));
  return wishes;
}

std::vector<ChosenPlan> of_all_stages(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                      const Rates& rates, int first) {
  std::vector<ChosenPlan> all(static_cast<size_t>(base.scheduling.pipeline.ranks));
  all[static_cast<size_t>(first)] = choose_plan(of_rank(base, first), wishes, budgets, rates);
  const PlacementSettings same = like(wishes, all[static_cast<size_t>(first)].plan);
  for (int p = 0; p < base.scheduling.pipeline.ranks; ++p) {
    if (p != first) all[static_cast<size_t>(p)] = choose_plan(of_rank(base, p), same, budgets, rates);
  }
  return all;
}

// Chooses the plans for the case that only some pipeline stages become faster if optimizer updates overlap with computing. On a GPU all
// stages then make their updates in the next forward, if such plans fit: the GPU does not wait for the CPU's updates, so the other stages
// lose nothing. Otherwise all stages make their updates after the backward.
std::vector<ChosenPlan> of_unlike_stages(const PlanRequest& base, PlacementSettings wishes, const TierBudgets& budgets, const Rates& rates,
                                         int first) {
  if (base.device == Device::Kind::cuda) {
    wishes.overlap = OptimizerOverlap::forward;
    try {
      return of_all_stages(base, wishes, budgets, rates, first);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::refused) throw;
    }
  }
  wishes.overlap = OptimizerOverlap::none;
  return of_all_stages(base, wishes, budgets, rates, first);
}

// Joins the placements (the tier of each kind of data) of all pipeline stages into one request. Each parameter group is placed as in the
// plan of the rank that owns it, and the activations of each block as in the plan of the rank that computes the block.
PlanRequest joined(PlanRequest base, const std::vector<ChosenPlan>& stages, const std::vector<u16>& rank_of) {
  const Plan& any = stages.front().plan;
  const auto of = [&](u16 block) -> const parallel::Placement& { return stages[rank_of[block]].plan.placement; };
  base.placement = any.placement;
  for (const parallel::Group& g : base.layout.groups) {
    base.placement.parameters[g.id] = of(g.owner_block).parameters[g.id];
    base.placement.gradients[g.id] = of(g.owner_block).gradients[g.id];
    base.placement.optimizer[g.id] = of(g.owner_block).optimizer[g.id];
  }
  for (u16 b = 0; b < rank_of.size(); ++b) base.placement.activations[b] = of(b).activations[b];
  base.placement.keeps_logits = of(static_cast<u16>(rank_of.size() - 1)).keeps_logits;
  if (std::ranges::any_of(stages, [](const ChosenPlan& stage) { return stage.plan.placement.cache == parallel::Tier::host; }))
    base.placement.cache = parallel::Tier::host;
  const int rank = base.scheduling.pipeline.rank;
  base.scheduling = any.scheduling;
  base.scheduling.pipeline.rank = rank;
  // the lists of outputs and of spilled bytes are cleared, so that make_plan() fills them in again
  base.scheduling.spilled_bytes.clear(), base.scheduling.output_bytes.clear();
  base.adaptive_overlap = any.train_when_clipping.has_value();
  for (const ChosenPlan& stage : stages) {
    if (stage.plan.staging_buffers == 0) continue;
    base.staging_buffers = base.staging_buffers == parallel::kLeastStagingBuffers
                               ? stage.plan.staging_buffers
                               : std::min(base.staging_buffers, stage.plan.staging_buffers);
  }
  return base;
}

std::string blocks_of(const std::vector<u16>& rank_of, int rank) {
  std::string text;
  for (size_t b = 0; b < rank_of.size(); ++b) {
    if (rank_of[b] != rank || (b > 0 && rank_of[b - 1] == rank)) continue;
    size_t last = b;
    while (last + 1 < rank_of.size() && rank_of[last + 1] == rank) ++last;
    text += (text.empty() ? "" : ", ") + (last == b ? fmt::format("{}", b) : fmt::format("{}-{}", b, last));
  }
  return text;
}

std::string stage_line(const Plan& plan, const std::vector<u16>& rank_of, int rank) {
  return fmt::format("pipeline rank {}: blocks {}; device {}, host {}, nvme {}", rank, blocks_of(rank_of, rank),
                     format_bytes(plan.total[0]), format_bytes(plan.total[1]), format_bytes(plan.total[2]));
}

}  // namespace

void deal_blocks(PlanRequest& request, const PlacementSettings& wishes, const Rates& rates) {
  parallel::Pipeline& pipeline = request.scheduling.pipeline;
  const auto blocks = std::ssize(request.layout.blocks);
  if (pipeline.ranks == 1 || wishes.order == parallel::Order::vertical) return;
  const i64 stages = pipeline.table ? pipeline.table->stages() : pipeline.ranks * pipeline.chunks;
  if (wishes.pipeline_split != "auto") {
    pipeline.begins = parallel::parse_split(wishes.pipeline_split, stages, blocks);
    return;
  }
  const auto tokens = static_cast<double>(request.micro_batch_size * request.sequence_length);
  std::vector<parallel::BlockCost> costs;
  for (u16 b = 0; b < blocks; ++b) {
    const BlockSeconds block = rates.block(b, block_flops(request.layout, *request.model, b, tokens));
    costs.push_back({block.forward + (b < request.layout.first_trained_block ? 0 : block.backward), 0});
  }
  pipeline.begins = parallel::split_blocks(costs, stages);
}

ChosenPlan choose_stage_plans(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates) {
  const int ranks = base.scheduling.pipeline.ranks, rank = base.scheduling.pipeline.rank;
  if (ranks == 1) return choose_plan(base, wishes, budgets, rates);
  PlanRequest request = base;
  if (wishes.order) request.scheduling.order = *wishes.order;
  const std::vector<u16> rank_of = make_stages(request.layout, request.scheduling).rank_of;
  const int first = heaviest(request, rank_of);
  std::vector<ChosenPlan> stages = of_all_stages(request, wishes, budgets, rates, first);
  if (!std::ranges::all_of(stages, [&](const ChosenPlan& s) { return alike(s.plan, stages.front().plan); }))
    stages = of_unlike_stages(request, wishes, budgets, rates, first);
  const PlanRequest all = joined(request, stages, rank_of);
  ChosenPlan mine{make_plan(all), std::move(stages[static_cast<size_t>(rank)].why)};
  for (int p = 0; p < ranks; ++p) {
    const Plan plan = make_plan(of_rank(all, p));
    require_room(plan, budgets);
    mine.why.push_back(stage_line(plan, rank_of, p));
    if (const std::string logits = logits_text(plan); p != rank && !logits.empty()) mine.why.back() += "; " + logits;
  }
  return mine;
}

std::vector<Plan> plans_of_stages(const PlanRequest& request, const Plan& mine) {
  std::vector<Plan> plans;
  for (int p = 0; p < request.scheduling.pipeline.ranks; ++p)
    plans.push_back(p == request.scheduling.pipeline.rank ? mine : make_plan(of_rank(request, p)));
  return plans;
}

namespace {

using Which = std::function<const parallel::Program&(const Plan&)>;

// Returns the Program (list of instructions) that `which` selects, as it is on data-parallel rank `rank` of the plan's pipeline stage.
parallel::Program of_data_rank(const Plan& plan, const Which& which, int rank) {
  const parallel::Program& mine = which(plan);
  parallel::Scheduling scheduling = plan.scheduling;
  if (rank == scheduling.sharding.rank) return mine;
  scheduling.sharding.rank = rank;
  if (&mine == &plan.forward) return generate_forward(plan.layout, plan.placement, scheduling);
  scheduling.overlap = mine.overlap;
  return generate_training(plan.layout, plan.placement, scheduling);
}

// Checks that the Programs (lists of instructions) of all ranks match. `which` selects one Program of each plan.
void check_one_of_each(const std::vector<Plan>& stages, const Which& which) {
  const int data_ranks = stages.front().scheduling.sharding.ranks;
  std::vector<parallel::Program> programs;
  for (const Plan& plan : stages) {
    for (int r = 0; r < data_ranks; ++r) programs.push_back(of_data_rank(plan, which, r));
  }
  std::vector<const parallel::Program*> all;
  for (const parallel::Program& program : programs) all.push_back(&program);
  parallel::check_together(all, {data_ranks, static_cast<int>(stages.size())});
}

}  // namespace

void check_meetings(const std::vector<Plan>& stages) {
  check_one_of_each(stages, [](const Plan& plan) -> const parallel::Program& { return plan.forward; });
  if (!stages.front().training) return;
  check_one_of_each(stages, [](const Plan& plan) -> const parallel::Program& { return plan.train; });
  const bool clipped = std::ranges::any_of(stages, [](const Plan& plan) { return plan.train_when_clipping.has_value(); });
  if (clipped) {
    check_one_of_each(stages, [](const Plan& plan) -> const parallel::Program& {
      return plan.train_when_clipping ? *plan.train_when_clipping : plan.train;
    });
  }
}

}  // namespace spillway::trainer
