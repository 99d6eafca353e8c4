#include "trainer/plan/left_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/units.h"
#include "trainer/plan/search.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::Plan;
using parallel::PlanRequest;
using parallel::Tier;

// A kind of data whose tier the value `auto` of a --place option leaves to the planner: weights, gradients or optimizer state.
struct Kind {
  const char* name;
  const PlacementWish& wish;
  std::vector<Tier>& tiers;
  i64 tile_bytes;
  bool slots;  // whether the tier may store two copies of this data, so that a step overwrites no bytes that are still read
  parallel::TileRange (*held)(const parallel::Placement&, const parallel::Scheduling&, const parallel::Group&);
};

parallel::TileRange stepped(const parallel::Placement&, const parallel::Scheduling& scheduling, const parallel::Group& group) {
  return scheduling.sharding.stepped(group);
}

// Returns the bytes of this kind of data that the parameter group `group` takes in the tier in which `kind.tiers` places it.
i64 bytes_of(const Kind& kind, const parallel::Group& group, const PlanRequest& request, const Plan& plan) {
  const Tier tier = kind.tiers[group.id];
  const bool rests_once = tier != Tier::device && plan.scheduling.gradients_travel_once();
  const i64 copies = kind.slots ? (group.frozen ? 1 : plan.slots(tier)) : rests_once ? 1 : static_cast<i64>(group.uses.size());
  const i64 tiles = kind.held(request.placement, request.scheduling, group).count();
  const bool state = &kind.tiers == &request.placement.optimizer;
  const i64 tile_bytes = state ? request.scheduling.format_of(group).state_tile_bytes() : kind.tile_bytes;
  return tiles * tile_bytes * (plan.training ? copies : 1);
}

// Returns the kinds of data in the order of their traffic per byte. Weights are first: forward and backward each read them, and the
// update reads and writes them, four times their bytes in all. Gradients and optimizer state are each written once and read once.
std::vector<Kind> kinds(PlanRequest& request, const PlacementSettings& wishes) {
  const optim::StateFormat& format = request.scheduling.format;
  parallel::Placement& p = request.placement;
  return {{"weights", wishes.parameters, p.parameters, format.weight_tile_bytes(), true, parallel::held_weights},
          {"gradients", wishes.gradients, p.gradients, format.gradient_tile_bytes(), false, parallel::held_gradients},
          {"optimizer state", wishes.optimizer, p.optimizer, format.state_tile_bytes(), true, stepped}};
}

// Returns a text that lists the bytes on the device or host tier in `after` that are in a slower tier in `before`.
std::string moved_up(PlanRequest before, PlanRequest after, const PlacementSettings& wishes, const Plan& plan) {
  std::string moved;
  const std::vector<Kind> old = kinds(before, wishes), now = kinds(after, wishes);
  for (const Tier tier : {Tier::device, Tier::host}) {
    for (size_t k = 0; k < now.size(); ++k) {
      i64 bytes = 0;
      for (const parallel::Group& g : plan.layout.groups)
        bytes += now[k].tiers[g.id] == tier && old[k].tiers[g.id] > tier ? bytes_of(now[k], g, after, plan) : 0;
      if (bytes > 0) moved += fmt::format("{}{} of {} on {}", moved.empty() ? "" : ", ", format_bytes(bytes), now[k].name, to_string(tier));
    }
  }
  return moved;
}

// Returns the unused bytes of the device tier and the host tier. If no flag
// divides the memory between the two, all unused bytes count as the device's.
std::array<i64, offload::kTiers> left_of(const Plan& plan, const TierBudgets& b) {
  const i64 on_tmpfs = b.nvme_is_memory ? plan.total[2] : 0;
  if (b.host_from_device) return {b.bytes[0] - plan.total[0] - plan.total[1] - on_tmpfs, 0, 0};
  return {b.bytes[0] - plan.total[0], b.bytes[1] - plan.total[1] - on_tmpfs, 0};
}

// Reverses the bits of `number`. Sorting 0, 1, 2, … by the result gives an order in which the members of every prefix are spread evenly.
u16 reversed_bits(u16 number) {
  u16 reversed = 0;
  for (int bit = 0; bit < 16; ++bit) reversed = static_cast<u16>(reversed << 1 | (number >> bit & 1));
  return reversed;
}

class Filling {
 public:
  Filling(PlanRequest request, const Plan& plan, const PlacementSettings& wishes)
      : request_(std::move(request)), plan_(plan), wishes_(wishes) {}

  /// Moves parameter groups to faster tiers, into `share` of the unused memory `left`. Large groups move first: a group in a slower tier
  /// passes through a device buffer, which must be as large as the largest such group. Among groups of equal size, groups that are far
  /// apart in the model move first. The groups that remain in the slower tier are then evenly spaced, and their transfers hide behind
  /// computing.
  i64 fill(std::array<i64, offload::kTiers> left, double share) {
    i64 moved = 0;
    for (const Tier tier : {Tier::device, Tier::host}) {
      i64& room = left[static_cast<size_t>(tier)];
      room = static_cast<i64>(static_cast<double>(room) * share);
      for (Kind& kind : kinds(request_, wishes_)) moved += fill(kind, tier, room);
    }
    return moved;
  }
  /// Moves to the device the largest of the parameter groups whose weights are in a slower tier, whether or not the budget has room for it.
  i64 take_largest() {
    Kind weights = kinds(request_, wishes_).front();
    i64 room = std::numeric_limits<i64>::max();
    return fill(weights, Tier::device, room, 1);
  }
  const PlanRequest& request() const { return request_; }

 private:
  i64 fill(Kind& kind, Tier tier, i64& room, i64 most = std::numeric_limits<i64>::max()) const {
    if (!kind.wish.automatic) return 0;
    std::vector<std::pair<i64, const parallel::Group*>> below;
    for (const parallel::Group& g : plan_.layout.groups) {
      // a frozen group has weights only, no gradients and no optimizer state
      if (g.frozen && &kind.tiers != &request_.placement.parameters) continue;
      // this group's gradient is consumed before it would be stored, so it needs no memory
      if (&kind.tiers == &request_.placement.gradients && !plan_.gradient_rests(g, 0)) continue;
      if (kind.tiers[g.id] > tier) below.emplace_back(bytes_on(kind, g, tier), &g);
    }
    std::ranges::sort(below, std::less(), [](const auto& group) { return std::pair(-group.first, reversed_bits(group.second->id)); });
    i64 moved = 0;
    for (const auto& [bytes, group] : below) {
      if (bytes > room || most == 0) continue;
      kind.tiers[group->id] = tier;
      room -= bytes;
      moved += bytes;
      --most;
    }
    return moved;
  }
  i64 bytes_on(Kind& kind, const parallel::Group& group, Tier tier) const {
    const Tier before = std::exchange(kind.tiers[group.id], tier);
    const i64 bytes = bytes_of(kind, group, request_, plan_);
    kind.tiers[group.id] = before;
    return bytes;
  }

  PlanRequest request_;
  const Plan& plan_;
  const PlacementSettings& wishes_;
};

bool fits(const Plan& plan, const TierBudgets& budgets) { return total_excess(plan, budgets) == 0; }

double cost_of(const PlanRequest& request, const Plan& plan, const Rates& rates) { return step_cost_s(plan, *request.model, rates); }

// A gain is not reported if the step takes more than this share of its former time, because that is within the error of the predictions.
constexpr double kWorthSaying = 0.97;

std::string gain_text(const std::string& what, const Plan& before, const Plan& after, const nn::Sequential& model, const Rates& rates) {
  const double before_s = step_seconds(before, model, rates), after_s = step_seconds(after, model, rates);
  if (after_s > kWorthSaying * before_s) return "";
  return fmt::format("left-over memory: {}: {} a step instead of {}", what, format_duration(after_s), format_duration(before_s));
}

// Returns the largest count in [0, most] for which good(count) is true. If good() is true for a count, it must be true for all smaller
// counts.
template <class Good>
size_t largest(size_t most, const Good& good) {
  size_t least = 0;
  while (least < most) {
    const size_t middle = least + (most - least + 1) / 2;
    good(middle) ? least = middle : most = middle - 1;
  }
  return least;
}

}  // namespace

std::optional<Fuller> keep_left_over(const PlanRequest& request, const Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates) {
  const parallel::ActivationPolicy all = request.placement.activations.front();
  const parallel::ActivationPolicy kept{.recompute = wishes.recompute == Recompute::block,
                                        .tier = wishes.activations.automatic ? Tier::device : all.tier};
  if (!plan.training || all == kept) return {};
  const size_t blocks = request.placement.activations.size();
  const auto keeping = [&](size_t count) {
    PlanRequest r = request;
    std::fill_n(r.placement.activations.rbegin(), count, kept);
    return r;
  };
  const size_t count = largest(blocks, [&](size_t n) { return fits(size_plan(keeping(n)), budgets); });
  if (count == 0) return {};
  PlanRequest fuller = keeping(count);
  Plan made = size_plan(fuller);
  if (cost_of(fuller, made, rates) >= cost_of(request, plan, rates)) return {};
  const std::string what = fmt::format("the last {} of {} blocks {}", count, blocks,
                                       all.tier == kept.tier ? "are not recomputed" : "keep their activations on the device");
  std::string gain = gain_text(what, plan, made, *request.model, rates);
  return Fuller{std::move(fuller), std::move(made), std::move(gain)};
}

std::optional<Fuller> keep_logits(const PlanRequest& request, const Plan& plan, const PlacementSettings&, const TierBudgets& budgets,
                                  const Rates& rates) {
  if (plan.logits_bytes == 0 || request.placement.keeps_logits) return {};
  PlanRequest fuller = request;
  fuller.placement.keeps_logits = true;
  Plan made = size_plan(fuller);
  if (!fits(made, budgets) || cost_of(fuller, made, rates) >= cost_of(request, plan, rates)) return {};
  return Fuller{std::move(fuller), std::move(made), ""};
}

std::optional<Fuller> fill_left_over(const PlanRequest& request, const Plan& plan, const PlacementSettings& wishes,
                                     const TierBudgets& budgets, const Rates& rates) {
  if (!plan.training) return {};
  const double before_s = cost_of(request, plan, rates);
  Fuller best{request, plan, ""};
  double best_s = before_s;
  const auto take = [&](Filling& filling) {
    Plan made = size_plan(filling.request());
    if (!fits(made, budgets)) return false;
    const double cost_s = cost_of(filling.request(), made, rates);
    const bool cheaper = cost_s < best_s;
    if (cheaper) best = {filling.request(), std::move(made), ""}, best_s = cost_s;
    return cheaper;
  };
  if (Filling filling(best.request, best.plan, wishes); filling.take_largest() > 0) take(filling);
  // only a share of the unused memory may be usable, because moving data to other tiers may take more device buffers
  for (const double share : {1.0, 0.9, 0.5}) {
    Filling filling(best.request, best.plan, wishes);
    if (filling.fill(left_of(best.plan, budgets), share) == 0 || take(filling)) break;
  }
  if (best_s >= before_s) return {};
  best.why = gain_text(moved_up(request, best.request, wishes, best.plan) + " rather than in a slower tier", plan, best.plan,
                       *request.model, rates);
  return best;
}

}  // namespace spillway::trainer
