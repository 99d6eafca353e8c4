#include "trainer/plan/less_to_hold.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/plan/search.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::PlanRequest;
using parallel::Tier;

constexpr i64 kFewestPositions = 64;

// A plan request with some flags added, and these flags as text.
struct Asked {
  PlanRequest request;
  std::string flags;
  bool changes_numbers = false;
};

Asked with(Asked asked, const std::string& flag, bool changes_numbers) {
  asked.flags += (asked.flags.empty() ? "" : " ") + flag;
  asked.changes_numbers |= changes_numbers;
  return asked;
}

std::optional<Asked> with_split_master(Asked asked) {
  optim::StateFormat& format = asked.request.scheduling.format;
  if (format.weight != DType::bf16 || format.master == optim::Master::split) return {};
  format.master = optim::Master::split;
  return with(std::move(asked), "--master-weights split", false);
}

std::optional<Asked> with_rounded_gradients(Asked asked) {
  parallel::Scheduling& scheduling = asked.request.scheduling;
  if (scheduling.format.weight == DType::f64 || scheduling.round_gradients) return {};
  scheduling.round_gradients = true;
  return with(std::move(asked), "--gradient-dtype bf16", true);
}

std::optional<Asked> with_moments(Asked asked, optim::Moments moments) {
  optim::StateFormat& format = asked.request.scheduling.format;
  if (format.weight == DType::f64 || format.moments >= moments || state_arrays(format.rule) == 0) return {};
  if (is_of_parameters(format.rule)) return {};
  if (moments == optim::Moments::int8 && format.rule != optim::Rule::adamw) return {};
  format.moments = moments;
  return with(std::move(asked), moments == optim::Moments::bf16 ? "--moments bf16" : "--moments 8bit", true);
}

std::optional<Asked> with_half_the_positions(Asked asked) {
  PlanRequest& r = asked.request;
  if (!r.model->reads_tokens() || r.sequence_length / 2 < kFewestPositions) return {};
  r.sequence_length /= 2;
  return asked;
}

std::optional<Asked> with_half_the_rows(Asked asked) {
  PlanRequest& r = asked.request;
  if (r.micro_batch_size < 2) return {};
  r.micro_batch_size /= 2;
  return asked;
}

using Halving = std::optional<Asked> (*)(Asked);

// Appends the flags --micro-batch-size and --sequence-length if `asked` has fewer rows or positions than the original request `first`.
Asked named(Asked asked, const PlanRequest& first) {
  const PlanRequest& r = asked.request;
  const i64 rows = r.micro_batch_size, positions = r.sequence_length;
  if (rows != first.micro_batch_size) asked = with(std::move(asked), fmt::format("--micro-batch-size {}", rows), true);
  if (positions != first.sequence_length) asked = with(std::move(asked), fmt::format("--sequence-length {}", positions), true);
  return asked;
}

class Trying {
 public:
  Trying(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates)
      : base_(base), wishes_(wishes), budgets_(budgets), rates_(rates) {}

  std::vector<LessToHold> all() {
    try_alone();
    if (!any_) try_together();
    if (!any_) try_with_a_disk();
    return std::move(found_);
  }

 private:
  bool fits(const Asked& asked) const { return search(asked.request, wishes_, budgets_, rates_, true).best.has_value(); }

  bool offer(const Asked& asked) {
    any_ = true;
    const Asked full = named(asked, base_);
    found_.push_back({full.flags, full.changes_numbers, {}});
    return true;
  }
  bool offer_if_it_fits(const std::optional<Asked>& asked) { return asked && fits(*asked) && offer(*asked); }

  // Halves `asked` again and again with `half`, and returns the largest result that fits. Returns nothing if none fits.
  std::optional<Asked> halved(const std::optional<Asked>& asked, Halving half) const {
    std::vector<Asked> all;
    for (std::optional<Asked> one = asked; one; one = half(*one)) all.push_back(*one);
    if (all.empty() || !fits(all.back())) return {};
    return *std::ranges::partition_point(all, [&](const Asked& one) { return !fits(one); });
  }

  void try_alone() {
    const Asked none{base_, "", false};
    if (wishes_.recompute == Recompute::none) try_recomputing(none);
    offer_if_it_fits(with_split_master(none));
    if (!offer_if_it_fits(with_moments(none, optim::Moments::bf16))) offer_if_it_fits(with_moments(none, optim::Moments::int8));
    offer_if_it_fits(with_rounded_gradients(none));
    for (const Halving half : {with_half_the_rows, with_half_the_positions}) {
      if (const auto fewer = halved(half(none), half)) offer(*fewer);
    }
  }

  void try_recomputing(const Asked& none) {
    PlacementSettings freer = wishes_;
    freer.recompute = Recompute::block;
    if (search(none.request, freer, budgets_, rates_, true).best) offer(with(none, "--recompute block", false));
  }

  // Returns combinations of flags, in ascending order of how much they change. Each combination stores the training state in fewer bytes
  // than the one before it.
  std::vector<Asked> levels() const {
    std::vector<Asked> all = {{base_, "", false}};
    const auto add = [&](const std::optional<Asked>& more) {
      if (more) all.push_back(*more);
    };
    add(with_split_master(all.back()));
    add(with_rounded_gradients(all.back()));
    const Asked before = all.back();
    add(with_moments(before, optim::Moments::bf16));
    add(with_moments(before, optim::Moments::int8));
    return all;
  }

  static Asked with_one_row(Asked asked) {
    while (auto fewer = with_half_the_rows(asked)) asked = std::move(*fewer);
    return asked;
  }

  // Suggests the first combination of flags that fits, with fewer positions if necessary.
  // Also suggests the last combination, if that one fits with more positions than the first.
  void try_together() {
    const std::vector<Asked> all = levels();
    std::optional<Asked> first;
    for (const Asked& level : all) {
      if (fits(level)) first = level;
      if (!first) first = halved(with_one_row(level), with_half_the_positions);
      if (first) break;
    }
    if (!first) return;
    offer(*first);
    const std::optional<Asked> last = halved(with_one_row(all.back()), with_half_the_positions);
    if (last && last->request.sequence_length > first->request.sequence_length) offer(*last);
  }

  // Suggests fewer positions together with a disk for the training state: once with the state as it is, once with the state at its
  // smallest.
  void try_with_a_disk() {
    const std::vector<Asked> all = levels();
    offer_with_a_disk(all.front());
    if (all.size() > 1) offer_with_a_disk(all.back());
  }

  void offer_with_a_disk(const Asked& level) {
    for (std::optional<Asked> asked = with_one_row(level); asked; asked = with_half_the_positions(*asked)) {
      const auto plan = plan_with_plenty(Tier::nvme, asked->request, wishes_, budgets_, rates_);
      if (!plan) continue;
      const Asked full = named(*asked, base_);
      if (!full.flags.empty()) found_.push_back({full.flags, full.changes_numbers, plan->total[2]});
      return;
    }
  }

  const PlanRequest& base_;
  const PlacementSettings& wishes_;
  const TierBudgets& budgets_;
  const Rates& rates_;
  std::vector<LessToHold> found_;
  bool any_ = false;
};

}  // namespace

std::vector<LessToHold> less_to_hold(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                     const Rates& rates) {
  if (!base.training) return {};
  return Trying(base, wishes, budgets, rates).all();
}

}  // namespace spillway::trainer
