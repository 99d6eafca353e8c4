#include "app/plan/reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace spillway::app {
namespace {

using parallel::Plan;
using parallel::Tier;

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

std::string policy_text(const parallel::ActivationPolicy& policy) {
  const std::string where = policy.tier == Tier::device ? "on the device" : fmt::format("in {} memory", offload::to_string(policy.tier));
  return policy.recompute ? "recomputed block by block from inputs kept " + where : "kept " + where;
}

// At most two policies: one of the first blocks, one of the last.
std::string activations_text(const std::vector<parallel::ActivationPolicy>& blocks) {
  const auto first = std::ranges::count(blocks, blocks.front());
  if (first == std::ssize(blocks)) return "activations: " + policy_text(blocks.front());
  return fmt::format("activations: {} of {} blocks {}, the last {} {}", first, blocks.size(), policy_text(blocks.front()),
                     std::ssize(blocks) - first, policy_text(blocks.back()));
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

}  // namespace

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> why = {"weights: " + tiers_text(plan.placement.parameters)};
  if (plan.training) {
    why.push_back("gradients: " + tiers_text(plan.placement.gradients));
    why.push_back("optimizer state: " + tiers_text(plan.placement.optimizer));
    if (plan.scheduling.format.moments != optim::Moments::fp32) {
      const bool bf16 = plan.scheduling.format.moments == optim::Moments::bf16;
      why.push_back(fmt::format("moments: {}, an approximation, stochastically rounded", bf16 ? "bf16" : "8 bit"));
    }
    if (plan.scheduling.round_gradients) why.push_back("gradients: rounded to bf16 once summed, an approximation");
    if (plan.scheduling.sums_each()) why.push_back("gradients: each micro-batch's summed over the ranks, of which each keeps its part");
    why.push_back(activations_text(plan.placement.activations));
  }
  if (plan.training && plan.scheduling.micro_batches > 1) {
    const bool vertical = plan.scheduling.order == parallel::Order::vertical;
    why.push_back(vertical ? "order: all micro-batches of a block, then the next block (weights travel once a step)"
                           : "order: one micro-batch after the other");
  }
  if (plan.training) why.push_back(overlap_text(plan));
  if (plan.training && plan.staging_buffers > 0)
    why.push_back(fmt::format("staging ring: {} buffers of {}", plan.staging_buffers, format_bytes(plan.staging_buffer_bytes)));
  if (plan.uses(Tier::nvme))
    why.push_back(fmt::format("prefetch: {} block{} ahead, from nvme", plan.scheduling.prefetch, plan.scheduling.prefetch == 1 ? "" : "s"));
  return why;
}

}  // namespace spillway::app
