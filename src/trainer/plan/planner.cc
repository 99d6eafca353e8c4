#include "trainer/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "trainer/plan/left_over.h"
#include "trainer/plan/reasons.h"
#include "trainer/plan/refusal.h"
#include "trainer/plan/search.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::PlanRequest;
using parallel::Tier;

// A plan with a higher ZeRO stage is chosen only if its step takes at most this share of the time with a lower stage.
constexpr double kWorthSplitting = 0.98;
// A plan that keeps the logits must move other bytes off the device. It is chosen only if
// its step takes at most this share of the time of the plan that does not keep the logits.
constexpr double kWorthMoving = 0.98;
// With kRoomyStagingBuffers host buffers for the optimizer's stream from and to the drive,
// the stream continues while the weights or gradients of a large block are evicted.
constexpr i64 kRoomyStagingBuffers = 12;
// kMostStagingBuffers is the number of host buffers for the optimizer's stream from and to the drive if nothing else needs the memory. Some
// drives complete requests in bursts of tens of MiB, and with so many buffers requests remain after a burst. More buffers gain nothing.
constexpr i64 kMostStagingBuffers = 24;

}  // namespace

std::vector<Tier> assign_tiers(const PlacementWish& wish, const std::vector<i64>& group_bytes) {
  if (const auto one = wish.one_tier()) return std::vector(group_bytes.size(), *one);
  std::array<i64, offload::kTiers> left = wish.bytes;
  size_t rest = 0;
  for (size_t t = 0; t < left.size(); ++t) {
    if (left[t] == PlacementWish::kRest) rest = t;
  }
  std::vector<Tier> tiers;
  for (i64 bytes : group_bytes) {
    size_t t = 0;
    while (t < left.size() && (left[t] == PlacementWish::kRest || left[t] < bytes)) ++t;
    if (t == left.size()) {
      t = rest;
    } else {
      left[t] -= bytes;
    }
    tiers.push_back(static_cast<Tier>(t));
  }
  return tiers;
}

namespace {

// Tunes which share of the optimizer's updates is deferred to the next forward; does nothing if none is deferred.
// The search starts with the share from the rough estimates and ends with the share whose simulated step is
// shortest. Deferring none is tried too, since more gradients may then stay on the device until their update.
void spread_steps(PlanRequest& request, Plan& plan, const TierBudgets& budgets, const Rates& rates) {
  constexpr int kApart = 2;
  if (!request.adaptive_overlap || request.scheduling.deferred_sixteenths == 0) return;
  double best_s = step_seconds(plan, *request.model, rates);
  const auto better = [&](int sixteenths) {
    if (sixteenths < 0 || sixteenths >= parallel::kAllSixteenths || sixteenths == request.scheduling.deferred_sixteenths) return false;
    PlanRequest other = request;
    other.scheduling.deferred_sixteenths = sixteenths;
    Plan spread = size_plan(other);
    const double spread_s = step_seconds(spread, *request.model, rates);
    if (spread_s >= best_s || total_excess(spread, budgets) > 0) return false;
    request = std::move(other), plan = std::move(spread), best_s = spread_s;
    return true;
  };
  for (const int apart : {-kApart, kApart}) {
    bool moved = false;
    while (better(request.scheduling.deferred_sixteenths + apart)) moved = true;
    if (moved) break;
  }
  better(0);
}

// Gives the plan `buffers` host buffers for the optimizer's stream from and to the drive, if the budgets have room for them.
void deepen_ring(PlanRequest& request, Plan& plan, i64 buffers, const TierBudgets& budgets) {
  if (!plan.training || plan.staging_buffers == 0) return;
  PlanRequest other = request;
  other.staging_buffers = buffers;
  Plan deeper = size_plan(other);
  if (total_excess(deeper, budgets) == 0) request = std::move(other), plan = std::move(deeper);
}

// Decides, if the optimizer's updates do not run where all their data lies, whether the CPU makes them or the GPU while tiles stream
// through its memory: the choice whose simulated step is shorter. Returns a line that says so, or an empty text if there is no choice.
std::string choose_stepper(PlanRequest& request, Plan& plan, const TierBudgets& budgets, const Rates& rates) {
  const auto has_choice = [&](const parallel::Group& g) {
    return plan.has_steps(g) && !g.by_parameter && !plan.steps_on_gpu(g.id, !plan.gradient_rests(g, 0));
  };
  if (!plan.on_gpu() || !plan.training || std::ranges::none_of(plan.layout.groups, has_choice)) return "";
  PlanRequest other = request;
  other.scheduling.streams_steps = !request.scheduling.streams_steps;
  Plan otherwise = size_plan(other);
  spread_steps(other, otherwise, budgets, rates);
  const bool streams = request.scheduling.streams_steps;
  if (total_excess(otherwise, budgets) > 0)
    return streams ? "" : "optimizer updates: on the CPU, because the device has no room for the tiles that the GPU would update";
  double chosen_s = step_seconds(plan, *request.model, rates), other_s = step_seconds(otherwise, *request.model, rates);
  if (other_s < chosen_s) request = std::move(other), plan = std::move(otherwise), std::swap(chosen_s, other_s);
  const char* const name = request.scheduling.streams_steps ? "on the GPU" : "on the CPU";
  const char* const other_name = request.scheduling.streams_steps ? "on the CPU" : "on the GPU";
  return fmt::format("optimizer updates {} make a step of {}; {} it would take {}", name, format_duration(chosen_s), other_name,
                     format_duration(other_s));
}

// Uses the memory that the plan leaves unused. First the optimizer's stream from and to the drive gets more host
// buffers, so that it continues while the disk is busy with other work. Then activations, parameter groups and
// logits are kept in memory, as far as there is room. If memory remains, the stream gets still more buffers.
ChosenPlan finished(PlanRequest request, Plan plan, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates) {
  deepen_ring(request, plan, kRoomyStagingBuffers, budgets);
  std::vector<std::string> filled;
  for (const auto& fill : {keep_left_over, fill_left_over, keep_logits}) {
    std::optional<Fuller> fuller = fill(request, plan, wishes, budgets, rates);
    if (!fuller) continue;
    request = std::move(fuller->request);
    plan = std::move(fuller->plan);
    if (!fuller->why.empty()) filled.push_back(std::move(fuller->why));
  }
  deepen_ring(request, plan, kMostStagingBuffers, budgets);
  spread_steps(request, plan, budgets, rates);
  const std::string stepper = choose_stepper(request, plan, budgets, rates);
  std::vector<std::string> why = reasons(plan);
  if (!stepper.empty()) why.push_back(stepper);
  why.insert(why.end(), filled.begin(), filled.end());
  return {std::move(plan), std::move(why)};
}

// Returns the seconds per step in which the backward computes the logits again. Keeping the logits cannot gain more than this time.
double logits_again_s(const Plan& plan, const nn::Sequential& model, const Rates& rates) {
  const auto last = static_cast<u16>(plan.layout.blocks.size() - 1);
  const auto again = std::ranges::count_if(
      plan.train.head, [&](const auto& i) { return i.block == last && computes_block(i.op) && i.op != parallel::Op::Forward; });
  const BlockFlops work = block_flops(plan.layout, model, last, static_cast<double>(plan.micro_batch_size * plan.sequence_length));
  return static_cast<double>(again) * rates.block(last, work).forward;
}

// Called if the fastest plan has no memory for the logits. Checks whether a plan that keeps the logits, but stores other data in slower
// tiers, gives a faster step.
ChosenPlan or_with_logits(ChosenPlan chosen, PlanRequest base, const PlacementSettings& wishes, const TierBudgets& budgets,
                          const Rates& rates) {
  if (chosen.plan.logits_bytes == 0 || chosen.plan.placement.keeps_logits) return chosen;
  const double chosen_s = step_cost_s(chosen.plan, *base.model, rates);
  if (logits_again_s(chosen.plan, *base.model, rates) < (1 - kWorthMoving) * chosen_s) return chosen;
  base.placement.keeps_logits = true;
  std::optional<Fitting> found = fastest_that_fits(base, wishes, budgets, rates);
  if (!found) return chosen;
  ChosenPlan keeping = finished(std::move(found->request), std::move(found->plan), wishes, budgets, rates);
  return step_cost_s(keeping.plan, *base.model, rates) < kWorthMoving * chosen_s ? std::move(keeping) : std::move(chosen);
}

ChosenPlan choose_at_stage(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                           const Rates& rates) {
  Found found = search(base, wishes, budgets, rates);
  if (found.best) {
    ChosenPlan chosen = finished(std::move(found.best->request), std::move(found.best->plan), wishes, budgets, rates);
    return or_with_logits(std::move(chosen), base, wishes, budgets, rates);
  }
  if (!wishes.explained) throw Error(ErrorCode::refused, "[plan] it does not fit");
  refuse_plan(base, wishes, budgets, rates, std::move(found));
}

// Returns the ZeRO stages to try. Without training there is nothing to shard but weights.
std::vector<int> stages(const PlanRequest& base, const PlacementSettings& wishes) {
  if (wishes.zero_stage) return {*wishes.zero_stage};
  if (base.scheduling.sharding.ranks == 1) return {0};
  if (base.scheduling.reduce_each) return {2, 3};
  return base.training ? std::vector{0, 1, 2, 3} : std::vector{0, 3};
}

std::string stage_text(const Plan& plan, const std::string& others) {
  const parallel::Sharding& s = plan.scheduling.sharding;
  if (!plan.training)
    return fmt::format("ZeRO stage {} over {} ranks: each rank holds {} weights{}", s.stage, s.ranks,
                       s.stage == 3 ? "its part of the" : "all", others);
  constexpr std::array<const char*, 4> kHolds = {"each rank holds everything", "each rank holds its part of the optimizer state",
                                                 "each rank holds its part of gradients and optimizer state",
                                                 "each rank holds its part of weights, gradients and optimizer state"};
  return fmt::format("ZeRO stage {} over {} ranks: {}{}", s.stage, s.ranks, kHolds[static_cast<size_t>(s.stage)], others);
}

std::string would_take(const Plan& plan, const nn::Sequential& model, const Rates& rates) {
  return fmt::format("; stage {} would take {} a step", plan.scheduling.sharding.stage, format_duration(step_seconds(plan, model, rates)));
}

}  // namespace

// Tries the ZeRO stages in ascending order. The lowest stage has the least traffic between ranks, so a higher stage is chosen only if it
// gains enough. Even a plan that keeps everything on the device may gain by a higher stage, since each rank then updates only its shard.
ChosenPlan choose_plan(const parallel::PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates) {
  const std::vector<int> all = stages(base, wishes);
  const auto dry_runs = base.dry_runs ? base.dry_runs : std::make_shared<parallel::DryRuns>();
  std::optional<ChosenPlan> best;
  double best_cost_s = 0;
  std::string others;
  for (const int stage : all) {
    parallel::PlanRequest request = base;
    request.scheduling.sharding.stage = stage;
    request.dry_runs = dry_runs;
    PlacementSettings asked = wishes;
    // the memory table is needed only if no ZeRO stage fits, so it is made for the last stage only
    asked.explained &= stage == all.back() && !best;
    try {
      ChosenPlan chosen = choose_at_stage(request, asked, budgets, rates);
      const double cost_s = step_cost_s(chosen.plan, *base.model, rates);
      if (best && cost_s > kWorthSplitting * best_cost_s) continue;
      if (best) others += would_take(best->plan, *base.model, rates);
      best = std::move(chosen);
      best_cost_s = cost_s;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::refused || (stage == all.back() && !best)) throw;
      others += fmt::format("; stage {} does not fit", stage);
    }
  }
  check_programs(best->plan);
  if (base.scheduling.sharding.ranks > 1) best->why.insert(best->why.begin(), stage_text(best->plan, others));
  return std::move(*best);
}

std::string memory_table(const Plan& plan, const TierBudgets& budgets) {
  const auto row = [](const std::string& what, const std::array<i64, offload::kTiers>& bytes, const char* zero) {
    const auto cell = [&](size_t t) { return bytes[t] ? format_bytes(bytes[t]) : zero; };
    return fmt::format("  {:<32}{:>12}{:>12}{:>12}\n", what, cell(0), cell(1), cell(2));
  };
  const int ranks = plan.scheduling.sharding.ranks;
  const std::string of = ranks > 1 ? fmt::format("per rank, of {}", ranks) : "";
  std::string text = fmt::format("  {:<32}{:>12}{:>12}{:>12}\n", of, "device", "host", "nvme");
  for (const parallel::PlanRow& r : plan.rows) text += row(r.what, r.bytes, "-");
  return text + row("total", plan.total, "-") + row("budget", budgets.bytes, budgets.host_from_device ? "shared" : "none");
}

}  // namespace spillway::trainer
