#include "trainer/plan/search.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::PlanRequest;
using parallel::Tier;

// At most kMostSized candidates are sized exactly. A plan that fits is usually found long before this limit.
constexpr int kMostSized = 60;
// At most kMostCompared plans that fit are simulated. They differ in which tiers store which data, or in where their optimizer updates run.
// Only plans whose estimated times are within kWorthComparing of the first one are simulated, since the estimates rank more distant plans
// correctly.
constexpr size_t kMostCompared = 8;
constexpr double kWorthComparing = 1.25;

constexpr i64 kPlentyBytes = i64{1} << 50;
// To find a plan that needs few bytes of one tier, kMostTried candidates that fit by their estimates are sized
// exactly: those that need the fewest bytes of the tier. If none of them fits, the kMostTried candidates that
// need the most bytes of the tier are sized, because they leave the most room in the other tiers.
constexpr size_t kMostTried = 12;

// Returns by how many bytes a candidate's estimated memory exceeds the budgets, summed over the tiers.
i64 missing(const Candidate& c, const TierBudgets& b) {
  i64 sum = 0;
  for (size_t t = 0; t < c.bytes.size(); ++t) sum += std::max<i64>(0, c.bytes[t] - b.bytes[t]);
  return sum;
}

// Returns whether two requests differ at most in how many blocks they prefetch. Such requests are not simulated, since their estimates
// rank them correctly.
bool alike(const PlanRequest& a, const PlanRequest& b) {
  const parallel::Placement &p = a.placement, &q = b.placement;
  return p.parameters == q.parameters && p.gradients == q.gradients && p.optimizer == q.optimizer && p.activations == q.activations &&
         a.scheduling.order == b.scheduling.order && a.scheduling.overlap == b.scheduling.overlap &&
         a.scheduling.deferred_sixteenths == b.scheduling.deferred_sixteenths;
}

}  // namespace

std::array<i64, offload::kTiers> excess(const Plan& plan, const TierBudgets& b) {
  std::array<i64, offload::kTiers> over{};
  for (size_t t = 0; t < over.size(); ++t) over[t] = std::max<i64>(0, plan.total[t] - b.bytes[t]);
  if (b.host_from_device) {
    over[1] = 0;
    over[0] = std::max<i64>(0, plan.total[0] + plan.total[1] + (b.nvme_is_memory ? plan.total[2] : 0) - b.bytes[0]);
  } else if (b.nvme_is_memory) {
    over[1] = std::max<i64>(over[1], plan.total[1] + plan.total[2] - b.bytes[1]);
  }
  return over;
}

i64 total_excess(const Plan& plan, const TierBudgets& b) {
  const auto over = excess(plan, b);
  return over[0] + over[1] + over[2];
}

void require_room(const Plan& plan, const TierBudgets& budgets) {
  if (total_excess(plan, budgets) == 0) return;
  throw Error(ErrorCode::refused, "[plan] the first rank's plan does not fit into this rank's budgets:\n" + memory_table(plan, budgets));
}

bool hopeless(const Candidate& c, const TierBudgets& b) {
  const i64 device_bytes = c.bytes[0] + (b.host_from_device ? c.bytes[1] : 0);
  return device_bytes > b.bytes[0] || (!b.host_from_device && c.bytes[1] > b.bytes[1]) || c.bytes[2] > b.bytes[2];
}

// Returns, of the plans tried, the one that needs the fewest bytes of the tier.
std::optional<Plan> plan_with_plenty(Tier tier, const PlanRequest& base, const PlacementSettings& wishes, TierBudgets budgets,
                                     const Rates& rates) {
  const auto t = static_cast<size_t>(tier);
  budgets.bytes[t] = kPlentyBytes;
  std::vector<Candidate> all = candidates(base, wishes, budgets, rates);
  std::erase_if(all, [&](const Candidate& c) { return hopeless(c, budgets); });
  std::stable_sort(all.begin(), all.end(), [t](const Candidate& a, const Candidate& b) { return a.bytes[t] < b.bytes[t]; });
  std::optional<Plan> least;
  const auto try_one = [&](const Candidate& c) {
    Plan plan = size_plan(c.request);
    if (total_excess(plan, budgets) == 0 && (!least || plan.total[t] < least->total[t])) least = std::move(plan);
  };
  for (size_t i = 0; i < all.size() && i < kMostTried; ++i) try_one(all[i]);
  for (size_t i = 0; !least && i + kMostTried < all.size() && i < kMostTried; ++i) try_one(all[all.size() - 1 - i]);
  return least;
}

std::optional<Plan> plan_with_a_disk(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                     const Rates& rates) {
  TierBudgets roomy = budgets;
  roomy.bytes[2] = kPlentyBytes;
  std::optional<Plan> plan = plan_with_plenty(Tier::device, base, wishes, roomy, rates);
  return plan && plan->total[2] > budgets.bytes[2] ? std::move(plan) : std::nullopt;
}

std::vector<WayOut> ways_out(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates) {
  std::vector<WayOut> ways;
  for (const Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
    if (tier == Tier::host && budgets.host_from_device) continue;
    if (auto plan = plan_with_plenty(tier, base, wishes, budgets, rates)) ways.push_back({tier, std::move(*plan)});
  }
  return ways;
}

double step_seconds(const Plan& plan, const nn::Sequential& model, const Rates& rates) { return predict(plan, {}, model, rates).seconds; }

double step_cost_s(const Plan& plan, const nn::Sequential& model, const Rates& rates) {
  const double written_bytes = plan.training ? static_cast<double>(plan.moved_per_step().written[static_cast<size_t>(Tier::nvme)]) : 0;
  return step_seconds(plan, model, rates) + rates.write_price_s(written_bytes);
}

namespace {

// Returns the plan of least cost among those that fit, or nothing if none fits. Sets `closest` to the plan that exceeds the budgets by the
// fewest bytes.
std::optional<Fitting> fastest_of(const std::vector<Candidate>& all, const PlanRequest& base, const TierBudgets& budgets,
                                  const Rates& rates, bool quick, std::optional<Plan>& closest) {
  std::vector<Fitting> fitting;
  int sized = 0;
  for (const Candidate& c : all) {
    if (hopeless(c, budgets) || std::ranges::any_of(fitting, [&](const Fitting& f) { return alike(f.request, c.request); })) continue;
    if (!fitting.empty() && c.seconds > kWorthComparing * fitting.front().estimate_s) break;
    if (sized++ == kMostSized) break;
    Plan plan = size_plan(c.request);
    if (total_excess(plan, budgets) == 0) {
      const double cost_s = plan.training && !quick ? step_cost_s(plan, *base.model, rates) : c.seconds;
      fitting.push_back({c.request, std::move(plan), c.seconds, cost_s});
      if (quick || fitting.size() == kMostCompared) break;
      continue;
    }
    if (!closest || total_excess(plan, budgets) < total_excess(*closest, budgets)) closest = std::move(plan);
  }
  if (fitting.empty()) return {};
  return std::move(*std::ranges::min_element(fitting, {}, &Fitting::cost_s));
}

}  // namespace

std::optional<Fitting> fastest_that_fits(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                         const Rates& rates) {
  std::optional<Plan> closest;
  return fastest_of(candidates(base, wishes, budgets, rates), base, budgets, rates, false, closest);
}

namespace {

// Called if none of the fastest candidates fits. For one tier after the other,
// the function tries the candidates that need the fewest bytes of that tier.
std::optional<Fitting> smallest_that_fits(const std::vector<Candidate>& all, const TierBudgets& budgets) {
  std::vector<const Candidate*> some;
  for (const Candidate& c : all) {
    if (!hopeless(c, budgets)) some.push_back(&c);
  }
  for (const Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
    const auto t = static_cast<size_t>(tier);
    std::ranges::stable_sort(some, {}, [t](const Candidate* c) { return c->bytes[t]; });
    std::optional<Fitting> least;
    for (const Candidate* c : std::span(some).first(std::min(some.size(), kMostTried))) {
      Plan plan = size_plan(c->request);
      if (total_excess(plan, budgets) == 0 && (!least || plan.total[t] < least->plan.total[t]))
        least = Fitting{c->request, std::move(plan), c->seconds};
    }
    if (least) return least;
  }
  return {};
}

}  // namespace

Found search(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates, bool quick) {
  const std::vector<Candidate> all = candidates(base, wishes, budgets, rates);
  if (all.empty()) throw Error(ErrorCode::refused, "[plan] no tier has a budget: give --device-memory");
  Found found;
  found.best = fastest_of(all, base, budgets, rates, quick, found.closest);
  if (!found.best) found.best = smallest_that_fits(all, budgets);
  if (found.best || quick || !wishes.explained) return found;
  found.ways = ways_out(base, wishes, budgets, rates);
  if (!found.closest) {
    const auto least = [&](const Candidate& a, const Candidate& b) { return missing(a, budgets) < missing(b, budgets); };
    found.closest = size_plan(std::min_element(all.begin(), all.end(), least)->request);
  }
  return found;
}

}  // namespace spillway::trainer
