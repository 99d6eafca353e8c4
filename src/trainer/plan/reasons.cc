#include "trainer/plan/reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
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
  const char* where = policy.tier == Tier::device ? "on the device" : policy.tier == Tier::host ? "in host memory" : "on nvme";
  return (policy.recompute ? "recomputed block by block from inputs kept " : "kept ") + std::string(where);
}

// Describes where the blocks' activations are kept. The blocks have at most two policies: one for the first blocks and one for the last
// blocks.
std::string activations_text(const std::vector<parallel::ActivationPolicy>& blocks) {
  const auto first = std::ranges::count(blocks, blocks.front());
  if (first == std::ssize(blocks)) return "activations: " + policy_text(blocks.front());
  return fmt::format("activations: {} of {} blocks {}, the last {} {}", first, blocks.size(), policy_text(blocks.front()),
                     std::ssize(blocks) - first, policy_text(blocks.back()));
}

std::string overlap_text(const Plan& plan) {
  if (plan.train_when_clipping && plan.scheduling.defers()) {
    const auto steps = [&](const parallel::Group& g) { return plan.has_steps(g); };
    const auto inside = [&](const parallel::Group& g) { return plan.has_steps(g) && !plan.residency[g.id].deferred; };
    return fmt::format("optimizer: inside backward for {} of {} groups unless clipping is frequent, else inside the next forward",
                       std::ranges::count_if(plan.layout.groups, inside), std::ranges::count_if(plan.layout.groups, steps));
  }
  if (plan.train_when_clipping) return "optimizer: inside backward unless clipping is frequent, else inside the next forward";
  switch (plan.train.overlap) {
    case parallel::OptimizerOverlap::backward:
      return "optimizer: inside backward, and again inside the next forward when gradients are clipped";
    case parallel::OptimizerOverlap::forward:
      return "optimizer: inside the next forward";
    default:
      return "optimizer: after backward";
  }
}

// Says whether the CPU or the GPU runs the optimizer's updates. Returns an empty text without a GPU.
std::string stepper_text(const Plan& plan) {
  if (!plan.on_gpu()) return "";
  bool by_cpu = false, there = false, streams = false;  // which kinds of updates there are
  for (const parallel::Group& g : plan.layout.groups) {
    if (!plan.has_steps(g)) continue;
    const bool given = !plan.gradient_rests(g, 0), here = plan.steps_on_gpu(g.id, given), streamed = plan.streams_step(g.id, given);
    there |= here, streams |= streamed, by_cpu |= !here && !streamed;
  }
  if (!by_cpu && !streams) return ", on the GPU, which holds all weights, gradients and state of the step";
  const bool beside = plan.train.overlap != parallel::OptimizerOverlap::none;
  if (streams)
    return fmt::format(", on the GPU, to which tiles are copied for it and back{}{}", by_cpu ? " (on the CPU for whole parameters)" : "",
                       beside ? ", beside computing" : ", while no block computes");
  return fmt::format(", on the CPU{}{}", there ? " (on the GPU for groups that reside there completely)" : "",
                     beside ? ", while the GPU computes" : ", while the GPU waits");
}

// Names the places from which weights and other data are fetched ahead of their use: host memory, nvme, other ranks.
std::string sources_text(const Plan& plan) {
  std::array<bool, offload::kTiers> tiers{};
  bool ranks = false;
  for (const parallel::Instruction& i : (plan.training ? plan.train : plan.forward).head) {
    if (i.op == parallel::Op::Fetch) {
      for (size_t t = 1; t < tiers.size(); ++t) tiers[t] |= i.read_bytes[t] > 0;
    }
    ranks |= i.op == parallel::Op::Gather && i.out.bytes > 0;
  }
  std::string text;
  const auto add = [&](bool there, const char* name) {
    if (there) text += (text.empty() ? "" : " and ") + std::string(name);
  };
  add(tiers[1], "host memory");
  add(tiers[2], "nvme");
  add(ranks, "other ranks");
  return text;
}

// Says how many blocks are prefetched and from where. Returns an empty text if nothing is fetched. With the CPU backend only data on nvme
// is prefetched.
std::string prefetch_text(const Plan& plan) {
  const std::string from = plan.on_gpu() ? sources_text(plan) : plan.uses(Tier::nvme) ? "nvme" : "";
  if (from.empty()) return "";
  const int blocks = plan.scheduling.prefetch;
  const char* beside = !plan.on_gpu() ? "" : blocks > 0 ? ", copied while the GPU computes" : ", so computing waits for each copy";
  return fmt::format("prefetch: {} block{} ahead, from {}{}", blocks, blocks == 1 ? "" : "s", from, beside);
}

}  // namespace

std::string logits_text(const Plan& plan) {
  if (plan.logits_bytes == 0) return "";
  const bool kept = std::ranges::any_of(plan.train.head, [](const parallel::Instruction& i) { return i.keep_logits; });
  return fmt::format("logits: {}, {} for each micro-batch",
                     kept ? "kept on the device from forward to backward" : "recomputed in pieces by backward",
                     format_bytes(plan.logits_bytes));
}

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> why = {"weights: " + tiers_text(plan.placement.parameters)};
  if (plan.training) {
    why.push_back("gradients: " + tiers_text(plan.placement.gradients));
    const bool state = plan.scheduling.format.state_tile_bytes() > 0;
    why.push_back("optimizer state: " + (state ? tiers_text(plan.placement.optimizer) : "none"));
    if (plan.scheduling.format.moments != optim::Moments::fp32) {
      const bool bf16 = plan.scheduling.format.moments == optim::Moments::bf16;
      why.push_back(fmt::format("moments: {}, an approximation, stochastically rounded", bf16 ? "bf16" : "8 bit"));
    }
    if (plan.scheduling.round_gradients) why.push_back("gradients: rounded to bf16 after they are summed, an approximation");
    if (plan.scheduling.sums_each()) why.push_back("gradients: summed over the ranks after each micro-batch, each rank keeps its shard");
    why.push_back(activations_text(plan.placement.activations));
    if (std::string text = logits_text(plan); !text.empty()) why.push_back(std::move(text));
  }
  if (plan.cache_bytes > 0 && plan.placement.cache == Tier::host)
    why.push_back(
        fmt::format("key/value cache: in host memory, {}; the keys and values of a block are on the device only while the block uses them",
                    format_bytes(plan.cache_bytes)));
  if (plan.training && plan.scheduling.micro_batches > 1) {
    const bool vertical = plan.scheduling.order == parallel::Order::vertical;
    why.push_back(vertical ? "order: all micro-batches of a block, then the next block (weights travel once a step)"
                           : "order: one micro-batch after the other");
  }
  if (plan.training) why.push_back(overlap_text(plan) + stepper_text(plan));
  if (plan.training && plan.staging_buffers > 0)
    why.push_back(fmt::format("staging ring: {} buffers of {}", plan.staging_buffers, format_bytes(plan.staging_buffer_bytes)));
  if (std::string text = prefetch_text(plan); !text.empty()) why.push_back(std::move(text));
  return why;
}

}  // namespace spillway::trainer
