#include "app/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using parallel::Layout;
using parallel::Placement;
using parallel::Plan;
using parallel::Tier;

constexpr Tier kAllTiers[] = {Tier::device, Tier::host, Tier::nvme};
// Relative cost of a byte moved: a copy in memory against a disk. Only their order decides.
constexpr double kCost[] = {0, 1, 12};
// A recomputed forward costs about as much as moving this many bytes in memory for each activation byte saved.
constexpr double kRecomputeCost = 4;

// How the optimizer's step runs: by itself, overlapped one way, or speculating while clipping is rare.
struct Overlap {
  parallel::OptimizerOverlap where = parallel::OptimizerOverlap::none;
  bool adaptive = false;
};

struct Candidate {
  Placement placement;
  parallel::ActivationPolicy activations;
  parallel::Order order = parallel::Order::micro_batch;
  int prefetch = 1;
  Overlap overlap;
};

std::vector<PlacementWish> options(const PlacementWish& wish, const TierBudgets& budgets) {
  if (!wish.automatic) return {wish};
  std::vector<PlacementWish> all;
  for (Tier t : kAllTiers) {
    if (budgets.bytes[static_cast<size_t>(t)] > 0) all.push_back(PlacementWish::whole(t));
  }
  return all;
}

std::vector<i64> bytes_of_groups(const Layout& layout, i64 tile_bytes) {
  std::vector<i64> bytes;
  for (const auto& g : layout.groups) bytes.push_back(g.elems / parallel::kTileElems * tile_bytes);
  return bytes;
}

std::vector<Placement> placements(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets) {
  const optim::StateFormat& format = base.scheduling.format;
  const auto weights = bytes_of_groups(base.layout, format.weight_tile_bytes()),
             state = bytes_of_groups(base.layout, format.state_tile_bytes());
  const auto gradients = bytes_of_groups(base.layout, format.gradient_tile_bytes());
  std::vector<Placement> all;
  for (const auto& p : options(wishes.parameters, budgets)) {
    for (const auto& g : options(wishes.gradients, budgets)) {
      for (const auto& o : options(wishes.optimizer, budgets))
        all.push_back({assign_tiers(p, weights), assign_tiers(g, gradients), assign_tiers(o, state), {}});
    }
  }
  return all;
}

bool any_on(const std::vector<Tier>& tiers, Tier tier) { return std::find(tiers.begin(), tiers.end(), tier) != tiers.end(); }

bool anything_moves(const Placement& p) {
  const auto all_device = [](const std::vector<Tier>& tiers) { return !any_on(tiers, Tier::host) && !any_on(tiers, Tier::nvme); };
  return !all_device(p.parameters) || !all_device(p.gradients);
}

// Kept on the device, run again, and at last kept in the lower tiers.
std::vector<parallel::ActivationPolicy> activation_policies(const parallel::PlanRequest& base, const PlanWishes& wishes,
                                                            const TierBudgets& budgets) {
  if (!base.training) return {{}};
  std::vector<parallel::ActivationPolicy> all;
  for (const PlacementWish& place : options(wishes.activations, budgets)) {
    for (const bool recompute : {false, true}) {
      if (wishes.recompute == Recompute::automatic || recompute == (wishes.recompute == Recompute::block))
        all.push_back({recompute, place.one_tier().value_or(Tier::device)});
    }
  }
  return all;
}

// Vertical order spares traffic, and pays with the activations of all micro-batches.
std::vector<parallel::Order> orders(const parallel::PlanRequest& base, const PlanWishes& wishes, const Placement& placement) {
  if (wishes.order) return {*wishes.order};
  if (base.training && base.scheduling.micro_batches > 1 && anything_moves(placement))
    return {parallel::Order::vertical, parallel::Order::micro_batch};
  return {parallel::Order::micro_batch};
}

// More blocks ahead hide more; fewer need less memory.
std::vector<int> prefetches(const PlanWishes& wishes) {
  return wishes.prefetch ? std::vector<int>{static_cast<int>(*wishes.prefetch)} : std::vector<int>{2, 1, 0};
}

// Only a disk is worth waiting for beside computing: in memory, the optimizer and the blocks want the same cores.
std::vector<Overlap> overlaps(const parallel::PlanRequest& base, const PlanWishes& wishes, const Placement& placement) {
  using Where = parallel::OptimizerOverlap;
  if (!base.training || wishes.overlap == OptimizerOverlap::none) return {{}};
  if (wishes.overlap == OptimizerOverlap::backward) return {{Where::backward, false}};
  if (wishes.overlap == OptimizerOverlap::forward) return {{Where::forward, false}};
  if (!any_on(placement.optimizer, Tier::nvme) && !any_on(placement.parameters, Tier::nvme)) return {{}};
  return {{Where::backward, true}, {Where::forward, false}};
}

std::vector<Candidate> candidates(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets) {
  std::vector<Candidate> all;
  for (const Placement& placement : placements(base, wishes, budgets)) {
    for (const auto& activations : activation_policies(base, wishes, budgets)) {
      for (const parallel::Order order : orders(base, wishes, placement)) {
        for (const int prefetch : prefetches(wishes)) {
          for (const Overlap& overlap : overlaps(base, wishes, placement))
            all.push_back({placement, activations, order, prefetch, overlap});
        }
      }
    }
  }
  return all;
}

double cost(const Plan& plan, const Candidate& c) {
  const parallel::TierBytes moved = plan.training ? plan.moved_per_step() : parallel::moved_bytes(plan.forward.head);
  double sum = 0;
  for (size_t t = 0; t < offload::kTiers; ++t) sum += kCost[t] * static_cast<double>(moved.read[t] + moved.written[t]);
  if (c.activations.recompute) sum += kRecomputeCost * static_cast<double>(plan.layout.elems()) * 4;
  return sum - c.prefetch - (c.overlap.adaptive ? 0.5 : 0.0);  // ties: the deeper prefetch, then the overlap that hides more
}

// Bytes over each budget.
std::array<i64, offload::kTiers> excess(const Plan& plan, const TierBudgets& b) {
  std::array<i64, offload::kTiers> over{};
  for (size_t t = 0; t < over.size(); ++t) over[t] = std::max<i64>(0, plan.total[t] - b.bytes[t]);
  if (b.nvme_is_memory) over[1] = std::max<i64>(over[1], plan.total[1] + plan.total[2] - b.bytes[1]);
  return over;
}

i64 total_excess(const Plan& plan, const TierBudgets& b) {
  const auto over = excess(plan, b);
  return over[0] + over[1] + over[2];
}

[[noreturn]] void refuse(const Plan& plan, const TierBudgets& b, const PlanWishes& wishes) {
  const auto over = excess(plan, b);
  const parallel::Tier all[] = {Tier::device, Tier::host, Tier::nvme};
  std::string text = "[plan] it does not fit:";
  for (Tier t : all) {
    if (over[static_cast<size_t>(t)] > 0)
      text += fmt::format(" {} by {}", offload::to_string(t), format_bytes(over[static_cast<size_t>(t)]));
  }
  text += ". The closest plan needs:\n" + memory_table(plan, b) + "What would help:";
  if (over[0] > 0) text += fmt::format(" --device-memory {} or more;", format_bytes(plan.total[0]));
  if (over[0] > 0 && b.bytes[2] == 0) text += " --nvme PATH;";
  if (over[0] > 0 && wishes.recompute == Recompute::none) text += " --recompute block;";
  if (over[0] > 0) text += " a smaller --micro-batch-size or --sequence-length;";
  if (over[1] > 0)
    text += fmt::format(" --host-memory {} or more{};", format_bytes(plan.total[1]), b.bytes[2] > 0 ? "" : ", or --nvme PATH");
  if (over[2] > 0) text += fmt::format(" {} of free space on the --nvme path;", format_bytes(plan.total[2]));
  text.back() = '.';
  throw Error(ErrorCode::refused, text);
}

std::string tiers_text(const std::vector<Tier>& tiers) {
  std::array<size_t, offload::kTiers> count{};
  for (Tier t : tiers) ++count[static_cast<size_t>(t)];
  std::string text;
  for (size_t t = 0; t < count.size(); ++t) {
    if (count[t] == tiers.size()) return std::string(offload::to_string(static_cast<Tier>(t)));
    if (count[t])
      text += fmt::format("{}{} of {} groups on {}", text.empty() ? "" : ", ", count[t], tiers.size(),
                          offload::to_string(static_cast<Tier>(t)));
  }
  return text;
}

std::string activations_text(const parallel::ActivationPolicy& policy) {
  const std::string where = policy.tier == Tier::device ? "on the device" : fmt::format("in {} memory", offload::to_string(policy.tier));
  return policy.recompute ? "activations: recomputed block by block from inputs kept " + where : "activations: kept " + where;
}

std::string overlap_text(const Plan& plan) {
  if (plan.train_when_clipping) return "optimizer: inside backward while clipping is rare, else inside the next forward";
  switch (plan.train.overlap) {
    case parallel::OptimizerOverlap::backward:
      return "optimizer: inside backward, done again when clipping bites";
    case parallel::OptimizerOverlap::forward:
      return "optimizer: inside the next forward";
    default:
      return "optimizer: after backward";
  }
}

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> why = {"weights: " + tiers_text(plan.placement.parameters)};
  if (plan.training) {
    why.push_back("gradients: " + tiers_text(plan.placement.gradients));
    why.push_back("optimizer state: " + tiers_text(plan.placement.optimizer));
    why.push_back(activations_text(plan.placement.activations.front()));
  }
  if (plan.training && plan.scheduling.micro_batches > 1) {
    const bool vertical = plan.scheduling.order == parallel::Order::vertical;
    why.push_back(vertical ? "order: all micro-batches of a block, then the next block (weights travel once a step)"
                           : "order: one micro-batch after the other");
  }
  if (plan.training) why.push_back(overlap_text(plan));
  why.push_back(fmt::format("prefetch: {} block{} ahead", plan.scheduling.prefetch, plan.scheduling.prefetch == 1 ? "" : "s"));
  return why;
}

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

ChosenPlan choose_plan(const parallel::PlanRequest& base, const PlanWishes& wishes, const TierBudgets& budgets) {
  std::optional<Plan> best, closest;
  double best_cost = 0;
  for (const Candidate& c : candidates(base, wishes, budgets)) {
    parallel::PlanRequest request = base;
    request.placement = c.placement;
    request.placement.activations.assign(base.layout.blocks.size(), c.activations);
    request.scheduling.prefetch = c.prefetch;
    request.scheduling.order = c.order;
    request.scheduling.overlap = c.overlap.where;
    request.adaptive_overlap = c.overlap.adaptive;
    Plan plan = make_plan(request);
    const double its_cost = cost(plan, c);
    if (total_excess(plan, budgets) > 0) {
      if (!closest || total_excess(plan, budgets) < total_excess(*closest, budgets)) closest = std::move(plan);
    } else if (!best || its_cost < best_cost) {
      best_cost = its_cost;
      best = std::move(plan);
    }
  }
  if (!best && !closest) throw Error(ErrorCode::refused, "[plan] no tier has a budget: give --device-memory");
  if (!best) refuse(*closest, budgets, wishes);
  std::vector<std::string> why = reasons(*best);
  return {std::move(*best), std::move(why)};
}

std::string memory_table(const Plan& plan, const TierBudgets& budgets) {
  const auto row = [](const std::string& what, const std::array<i64, offload::kTiers>& bytes, const char* zero) {
    const auto cell = [&](size_t t) { return bytes[t] ? format_bytes(bytes[t]) : zero; };
    return fmt::format("  {:<32}{:>12}{:>12}{:>12}\n", what, cell(0), cell(1), cell(2));
  };
  std::string text = fmt::format("  {:<32}{:>12}{:>12}{:>12}\n", "", "device", "host", "nvme");
  for (const parallel::PlanRow& r : plan.rows) text += row(r.what, r.bytes, "-");
  return text + row("total", plan.total, "-") + row("budget", budgets.bytes, "none");
}

}  // namespace spillway::app
