#include "trainer/plan/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "trainer/settings/placement_settings.h"

namespace spillway::trainer {
namespace {

using parallel::ActivationPolicy;
using parallel::Order;
using parallel::Placement;
using parallel::PlanRequest;
using parallel::Tier;
using Overlap = parallel::OptimizerOverlap;
using Bytes = std::array<i64, offload::kTiers>;

constexpr Tier kAllTiers[] = {Tier::device, Tier::host, Tier::nvme};

size_t index(Tier tier) { return static_cast<size_t>(tier); }
bool any_on(const std::vector<Tier>& tiers, Tier tier) { return std::find(tiers.begin(), tiers.end(), tier) != tiers.end(); }

// Returns the bytes of each parameter group's tiles (pieces of 16,384 elements). held(group) returns the range of tiles to count.
template <class Held>
std::vector<i64> bytes_of_groups(const parallel::Layout& layout, i64 tile_bytes, const Held& held) {
  std::vector<i64> bytes;
  for (const auto& g : layout.groups) bytes.push_back(held(g).count() * tile_bytes);
  return bytes;
}

Bytes by_tier(const std::vector<Tier>& tiers, const std::vector<i64>& bytes) {
  Bytes sum{};
  for (size_t g = 0; g < tiers.size(); ++g) sum[index(tiers[g])] += bytes[g];
  return sum;
}

// ActivationBytes holds the bytes of the activations under one policy, found by dry runs: the bytes on the
// device, the bytes that one micro-batch spills to another tier, and the bytes of the key/value cache.
struct ActivationBytes {
  i64 device = 0, spilled = 0, cache = 0;
};

parallel::Layout held_here(const PlanRequest& r) {
  return restricted(r.layout, make_stages(r.layout, r.scheduling).rank_of, r.scheduling.pipeline.rank);
}

class Enumeration {
 public:
  Enumeration(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets, const Rates& rates)
      : base_(base), layout_(held_here(base)), wishes_(wishes), budgets_(budgets), rates_(rates) {
    // A --place option may give bytes per tier (--place-optimizer device=2GiB,host=rest). The sizes of parameter groups are computed here
    // as such an option counts them. If the ZeRO stage shards this kind of state, only this rank's shard counts, otherwise the whole group.
    const parallel::Sharding& sharding = base.scheduling.sharding;
    const auto from_stage = [&](int stage) {
      return [&, stage](const parallel::Group& g) { return sharding.stage >= stage ? sharding.own(g) : parallel::whole(g); };
    };
    const optim::StateFormat& format = base.scheduling.format;
    weights_ = bytes_of_groups(layout_, format.weight_tile_bytes(), from_stage(3));
    gradients_ = bytes_of_groups(layout_, format.gradient_tile_bytes(), from_stage(2));
    for (const parallel::Group& g : layout_.groups)
      state_.push_back(from_stage(1)(g).count() * base.scheduling.format_of(g).state_tile_bytes());
    without_frozen(gradients_);
    without_frozen(state_);
    for (const parallel::Group& g : layout_.groups) {
      if (!layout_.owns(g)) state_[g.id] = 0;
    }
    const auto stepped = [&](const parallel::Group& g) { return sharding.stepped(g); };
    for (const i64 elems : bytes_of_groups(layout_, parallel::kTileElems, stepped)) stepped_elems_ += elems;
    for (const parallel::Group& g : layout_.groups)
      stepped_elems_ -= g.frozen || !layout_.owns(g) ? stepped(g).count() * parallel::kTileElems : 0;
    const auto tokens = static_cast<double>(base.micro_batch_size * base.sequence_length);
    const auto k = static_cast<double>(base.scheduling.micro_batches);
    for (u16 b = 0; b < layout_.blocks.size(); ++b) {
      if (!layout_.here(b)) continue;
      const BlockSeconds block = rates.block(b, block_flops(layout_, *base.model, b, tokens));
      forward_s_ += k * block.forward;
      if (b >= layout_.first_trained_block) backward_s_ += block.backward + (k - 1) * block.backward_more;
    }
  }

  std::vector<Candidate> all() {
    for (const auto& p : options(wishes_.parameters)) {
      for (const auto& g : options(wishes_.gradients)) {
        for (const auto& o : options(wishes_.optimizer)) {
          const Placement placement{
              assign_tiers(p, weights_), assign_tiers(g, gradients_), assign_tiers(o, state_), {}, base_.placement.keeps_logits};
          for (const auto& a : policies()) {
            for (const Tier cache : caches()) add_placement(placement, a, cache);
          }
        }
      }
    }
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
    return std::move(found_);
  }

 private:
  bool training() const { return base_.training; }
  bool on_gpu() const { return base_.device == Device::Kind::cuda; }
  void without_frozen(std::vector<i64>& bytes) const {
    for (const parallel::Group& g : layout_.groups) {
      if (g.frozen) bytes[g.id] = 0;
    }
  }
  i64 micro_batches() const { return base_.scheduling.micro_batches; }

  std::vector<PlacementWish> options(const PlacementWish& wish) const {
    if (!wish.automatic) return {wish};
    std::vector<PlacementWish> tiers;
    for (Tier t : kAllTiers) {
      if (budgets_.bytes[index(t)] > 0) tiers.push_back(PlacementWish::whole(t));
    }
    return tiers;
  }

  std::vector<ActivationPolicy> policies() const {
    if (!training()) return {{}};
    std::vector<ActivationPolicy> all;
    for (const PlacementWish& place : options(wishes_.activations)) {
      for (const bool recompute : {false, true}) {
        if (wishes_.recompute == Recompute::automatic || recompute == (wishes_.recompute == Recompute::block))
          all.push_back({recompute, place.one_tier().value_or(Tier::device)});
      }
    }
    return all;
  }

  // Returns the tiers to try for the key/value cache. The keys and values of
  // long texts may be larger than the weights, so host memory is tried too.
  std::vector<Tier> caches() const {
    if (base_.cache_positions == 0 || budgets_.bytes[index(Tier::host)] == 0) return {Tier::device};
    return {Tier::device, Tier::host};
  }

  // Returns the orders of micro-batches to try. Vertical order computes all micro-batches of one block
  // before the next block. It saves traffic, but needs memory for the activations of all micro-batches.
  std::vector<Order> orders(const Placement& p) const {
    if (wishes_.order) return {*wishes_.order};
    const bool moves = any_on(p.parameters, Tier::host) || any_on(p.parameters, Tier::nvme) || any_on(p.gradients, Tier::host) ||
                       any_on(p.gradients, Tier::nvme);
    // with several ranks, gradients of one block are summed over the ranks while the next block computes
    const bool meets = base_.scheduling.sharding.ranks > 1;
    if (training() && micro_batches() > 1 && (moves || meets)) return {Order::vertical, Order::micro_batch};
    return {Order::micro_batch};
  }

  // Returns whether a step becomes faster if the optimizer's updates overlap with forward and backward. On a GPU this is so if the CPU
  // updates any parameter group. On a CPU it is so only if the updates wait for the disk, because otherwise the optimizer and the blocks
  // compete for the same cores.
  bool steps_beside_computing(const Placement& p) const {
    if (!on_gpu()) return any_on(p.optimizer, Tier::nvme) || any_on(p.parameters, Tier::nvme);
    return std::ranges::any_of(layout_.groups, [&](const parallel::Group& g) { return stepped_by_cpu(p, g); });
  }
  // Returns whether the CPU's threads update this parameter group although the blocks are computed on a GPU.
  bool stepped_by_cpu(const Placement& p, const parallel::Group& g) const {
    return !g.frozen && layout_.owns(g) && (g.by_parameter || !p.steps_on_device(g.id, false));
  }

  // Returns whether the GPU can make some optimizer updates while their tiles stream through its memory (Plan::streams_step).
  bool may_stream(const Placement& p) const {
    return training() && on_gpu() &&
           std::ranges::any_of(layout_.groups, [&](const parallel::Group& g) { return stepped_by_cpu(p, g) && !g.by_parameter; });
  }

  std::vector<std::pair<Overlap, bool>> overlaps(const Placement& p) const {
    if (!training() || wishes_.overlap == OptimizerOverlap::none) return {{Overlap::none, false}};
    if (wishes_.overlap == OptimizerOverlap::backward) return {{Overlap::backward, false}};
    if (wishes_.overlap == OptimizerOverlap::forward) return {{Overlap::forward, false}};
    if (!steps_beside_computing(p)) return {{Overlap::none, false}};
    return {{Overlap::backward, true}, {Overlap::forward, false}};
  }

  // Returns whether a separate thread can prefetch anything. With the CPU backend only data on nvme is prefetched; with a GPU also data
  // in host memory and on other ranks.
  bool fetches_beside(const Placement& p, const ActivationPolicy& policy, Order order) const {
    const auto on = [&](const std::vector<Tier>& tiers) { return any_on(tiers, Tier::nvme) || (on_gpu() && any_on(tiers, Tier::host)); };
    const bool again = order == Order::micro_batch || (on_gpu() && base_.scheduling.sums_each());
    const bool gradients_come_back = on(p.gradients) && micro_batches() > 1 && again;
    const bool gathered = on_gpu() && base_.scheduling.sharding.ranks > 1 && base_.scheduling.sharding.stage == 3;
    return on(p.parameters) || base_.scheduling.activations_travel(policy.tier) || gradients_come_back || gathered;
  }

  std::vector<int> prefetches(const Placement& p, const ActivationPolicy& policy, Order order) const {
    if (wishes_.prefetch) return {static_cast<int>(*wishes_.prefetch)};
    return fetches_beside(p, policy, order) ? std::vector<int>{2, 1, 0} : std::vector<int>{0};
  }

  void add_placement(const Placement& placement, const ActivationPolicy& policy, Tier cache) {
    for (const Order order : orders(placement)) {
      for (const auto& [overlap, adaptive] : overlaps(placement)) {
        for (const int prefetch : prefetches(placement, policy, order)) {
          Candidate c{base_, 0, {}};
          c.request.scheduling.streams_steps = false;
          c.request.placement = placement;
          c.request.placement.activations.assign(base_.layout.blocks.size(), policy);
          c.request.placement.cache = cache;
          c.request.scheduling.order = order;
          c.request.scheduling.overlap = overlap;
          c.request.adaptive_overlap = adaptive;
          c.request.scheduling.prefetch = prefetch;
          Candidate streaming = c;
          estimate(c);
          if (may_stream(placement)) {
            streaming.request.scheduling.streams_steps = true;
            estimate(streaming);
            if (streaming.seconds < c.seconds) found_.push_back(std::move(streaming));
          }
          found_.push_back(std::move(c));
        }
      }
    }
  }

  // Returns the bytes of the activations, found by dry runs. In vertical order (all micro-batches of a block before the next block), K
  // micro-batches need the bytes of two micro-batches plus K - 2 times what a third one adds. In the other order the bytes of two
  // micro-batches are an upper bound.
  const ActivationBytes& activation_bytes(const PlanRequest& request) {
    const ActivationPolicy policy = request.placement.activations.front();
    const bool vertical = request.scheduling.order == Order::vertical;
    const Tier cache = request.placement.cache;
    const auto [entry, fresh] = activations_.try_emplace({policy.recompute, policy.tier != Tier::device, vertical, cache});
    if (!fresh) return entry->second;
    PlanRequest r = base_;
    r.placement = Placement::uniform(base_.layout, Tier::device, Tier::device, Tier::device, policy);
    r.placement.keeps_logits = base_.placement.keeps_logits;
    r.placement.cache = cache;
    r.scheduling.order = request.scheduling.order;
    if (base_.cache_positions > 0) {
      const parallel::WorkBytes work = parallel::work_bytes(r);
      return entry->second = {work.activations + work.foreign, 0, work.cache};
    }
    const auto of = [&](i64 k) {
      r.scheduling.micro_batches = k;
      const parallel::WorkBytes work = parallel::work_bytes(r);
      return work.activations + work.foreign;
    };
    const i64 k = micro_batches();
    // the pipeline schedule then decides how many micro-batches have activations in memory at once
    const bool in_pipeline = base_.scheduling.pipeline.ranks > 1;
    entry->second.device = in_pipeline || k <= 3 || !training() ? of(k) : vertical ? of(2) + (k - 2) * (of(3) - of(2)) : of(2);
    if (policy.tier != Tier::device) {
      const std::vector<i64> bytes = parallel::spillable_bytes(r);
      for (u16 b = 0; b < bytes.size(); ++b) entry->second.spilled += layout_.here(b) ? bytes[b] : 0;
    }
    return entry->second;
  }

  // Returns the gradients, in bytes by tier, that certainly stay in a device buffer from their
  // last use to the optimizer's update. They are neither written to their tier nor read back.
  Bytes staying_gradients(const Placement& p, const std::vector<i64>& gradients) const {
    Bytes staying{};
    for (const parallel::Group& g : layout_.groups) {
      if (stays_for_step(layout_, p, base_.scheduling, g)) staying[index(Tier::nvme)] += gradients[g.id];
    }
    return staying;
  }

  void estimate(Candidate& c) {
    const Placement& p = c.request.placement;
    const auto& scheduling = c.request.scheduling;
    const ActivationBytes activations = activation_bytes(c.request);
    const i64 live = scheduling.live_micro_batches();
    const auto slots = [&](size_t t) { return training() && (t == index(Tier::nvme) || scheduling.overlap == Overlap::backward) ? 2 : 1; };
    const optim::StateFormat& format = scheduling.format;
    const auto weights_of = [&](const parallel::Group& group) { return parallel::held_weights(p, scheduling, group); };
    const auto gradients_of = [&](const parallel::Group& group) { return parallel::held_gradients(p, scheduling, group); };
    std::vector<i64> gradients = bytes_of_groups(layout_, format.gradient_tile_bytes(), gradients_of);
    without_frozen(gradients);
    const Bytes w = by_tier(p.parameters, bytes_of_groups(layout_, format.weight_tile_bytes(), weights_of)),
                g = by_tier(p.gradients, gradients), s = by_tier(p.optimizer, state_);
    const Bytes staying = staying_gradients(p, gradients);
    const bool once = live == micro_batches(), gradients_once = scheduling.gradients_travel_once();
    // gradients that move once per step are never stored on nvme
    const auto rests = [&](size_t t) { return t != index(Tier::nvme) || !gradients_once; };
    for (size_t t = 0; t < c.bytes.size(); ++t) c.bytes[t] = slots(t) * w[t] + (training() ? (rests(t) ? g[t] : 0) + slots(t) * s[t] : 0);
    c.bytes[index(Tier::device)] += activations.device;
    if (scheduling.streams_steps)
      c.bytes[index(Tier::device)] += parallel::kStreamedBuffers * parallel::streamed_buffer_bytes(layout_, scheduling);
    const Tier spill = p.activations.front().tier;
    if (spill != Tier::device) c.bytes[index(spill)] += live * activations.spilled;
    c.bytes[index(p.cache)] += activations.cache;

    Moved moved;
    const auto k = static_cast<double>(micro_batches());
    for (size_t t = 1; t < moved.head.size(); ++t) {
      moved.head[t] = (training() ? 2 : 1) * (once ? 1 : k) * static_cast<double>(w[t]);
      moved.in += moved.head[t];
      if (!training()) continue;
      moved.head[t] += (gradients_once ? 1 : 2 * k - 1) * static_cast<double>(g[t]) - static_cast<double>(staying[t]);
      moved.in += (gradients_once ? 0 : k - 1) * static_cast<double>(g[t]);
      moved.out += (gradients_once ? 1 : k) * static_cast<double>(g[t]) - static_cast<double>(staying[t]);
      if (t == index(spill)) moved.head[t] += 2 * k * static_cast<double>(activations.spilled);
      moved.tail[t] = static_cast<double>(g[t] - staying[t] + (base_.scheduling.format.update_reads_weight() ? 2 : 1) * w[t] + 2 * s[t]);
    }
    if (spill != Tier::device) {
      moved.in += k * static_cast<double>(activations.spilled);
      moved.out += k * static_cast<double>(activations.spilled);
    }
    if (p.cache == Tier::host) moved.cache = static_cast<double>(activations.cache);
    if (c.request.adaptive_overlap) c.request.scheduling.deferred_sixteenths = sixteenths_to_defer(c.request, moved);
    c.seconds = on_gpu() ? seconds_beside_gpu(c.request, moved) : seconds_on_cpu(c.request, moved);
    // If candidates are estimated to take equally long, this factor prefers the
    // one that prefetches more blocks, and the one with an adaptive overlap.
    c.seconds *= 1 - 1e-4 * scheduling.prefetch - (c.request.adaptive_overlap ? 1e-5 : 0);
  }

  // Moved holds the bytes that a step moves.
  struct Moved {
    // bytes that the first (head) and second (tail) instruction list of a step read and write, by tier; 0 for the device
    std::array<double, offload::kTiers> head{}, tail{};
    // bytes that the head list copies to the device (in) and from it (out) during computing
    double in = 0, out = 0;
    double cache = 0;  // upper bound of the bytes of keys and values copied to the device
  };

  // Returns the share of the optimizer's updates, in sixteenths, that must be deferred to the next forward
  // because the backward has no time for them: the drive is busy with other transfers for a part of the backward.
  int sixteenths_to_defer(const PlanRequest& r, const Moved& moved) const {
    const double backward_s = backward_s_ + (recomputes(r) ? forward_s_ : 0), fetched_s = disk_s(moved.head) / 2;
    const double steps_s = std::max(on_gpu() ? steps_of(r).beside_s : 0, disk_s(moved.tail));
    const double inside_s = std::max(0.0, backward_s - fetched_s);
    if (steps_s <= inside_s) return 0;
    return static_cast<int>(std::ceil(parallel::kAllSixteenths * (1 - inside_s / steps_s)));
  }

  bool recomputes(const PlanRequest& r) const { return training() && r.placement.activations.front().recompute; }
  bool fetches_in_time(const PlanRequest& r) const {
    return r.scheduling.prefetch > 0 || !fetches_beside(r.placement, r.placement.activations.front(), r.scheduling.order);
  }

  double seconds_on_cpu(const PlanRequest& r, const Moved& moved) const {
    double compute_s = forward_s_ + (moved.head[1] + moved.cache) * rates_.unit.copy_s;
    if (training()) compute_s += backward_s_ + (recomputes(r) ? forward_s_ : 0);
    const double adam_s = training() ? static_cast<double>(stepped_elems_) * rates_.unit.update_s : 0;
    const double head_disk_s = disk_s(moved.head), tail_disk_s = disk_s(moved.tail);
    const double head_s = fetches_in_time(r) ? std::max(compute_s, head_disk_s) : compute_s + head_disk_s,
                 tail_s = std::max(adam_s, tail_disk_s);
    // Optimizer updates and checksums that run at the same time as computing still take a share of the cores.
    const double tiles_s = training() ? static_cast<double>(stepped_elems_) * rates_.unit.tile_s : 0;
    const double beside_s = (tiles_s + (moved.head[2] + moved.tail[2]) * rates_.unit.checksum_s) / rates_.machine.cores;
    const double together_s = std::max(compute_s + beside_s, head_disk_s + tail_disk_s);
    return r.scheduling.overlap == Overlap::none ? head_s + tail_s : std::max(head_s, together_s);
  }

  double disk_s(const std::array<double, offload::kTiers>& bytes) const { return rates_.disk_s(bytes[2] / 2, bytes[2] / 2); }

  // Estimates the time of a step on a GPU. Copies in both directions, the disk, the CPU's optimizer updates and computing overlap. What
  // is not prefetched, and keys and values in host memory, do not overlap. Optimizer updates
  // hide behind the backward or forward in which they run. If micro-batches run one after the other, they hide behind that of a single
  // micro-batch.
  double seconds_beside_gpu(const PlanRequest& r, const Moved& moved) const {
    const auto& scheduling = r.scheduling;
    const auto k = static_cast<double>(scheduling.live_micro_batches() == micro_batches() ? 1 : micro_batches());
    const double link = rates_.unit.copy_s, again_s = recomputes(r) ? forward_s_ : 0;
    const double backward_s = training() ? again_s + backward_s_ : 0;
    const double compute_s = forward_s_ + backward_s + moved.cache * link;
    const double fetched_s = std::max(moved.in * link, disk_s(moved.head)), out_s = moved.out * link;
    const double head_s = fetches_in_time(r) ? std::max({compute_s, fetched_s, out_s}) : std::max(compute_s + fetched_s, out_s);
    if (!training()) return head_s;
    const StepsBesideGpu steps = steps_of(r);
    const double tail_s = std::max(steps.beside_s, disk_s(moved.tail));
    const double deferred = scheduling.overlap == Overlap::forward ? 1
                            : scheduling.overlap == Overlap::backward
                                ? static_cast<double>(scheduling.deferred_sixteenths) / parallel::kAllSixteenths
                                : 0;
    double exposed_s = tail_s;
    if (scheduling.overlap != Overlap::none)
      exposed_s = std::max(0.0, deferred * tail_s - forward_s_ / k) + std::max(0.0, (1 - deferred) * tail_s - backward_s / k);
    const double link_s = std::max(moved.in + steps.to_gpu, moved.out + steps.from_gpu) * link;
    return steps.gpu_s + std::max({head_s + exposed_s, link_s, disk_s(moved.head) + disk_s(moved.tail)});
  }

  struct StepsBesideGpu {
    double gpu_s = 0, beside_s = 0;   // seconds of updates on the GPU alone, and of those that can run while it computes
    double to_gpu = 0, from_gpu = 0;  // bytes that the latter copy
  };
  // Returns the time of the optimizer's updates. A parameter group that is not entirely on the GPU is updated by the CPU, and the part of
  // it that is on the GPU is copied to host memory and back; or its other parts stream through the GPU, which updates it.
  StepsBesideGpu steps_of(const PlanRequest& r) const {
    const Placement& p = r.placement;
    const optim::StateFormat& format = base_.scheduling.format;
    StepsBesideGpu steps;
    double gpu_elems = 0, cpu_elems = 0, streamed_elems = 0, streamed_bytes = 0;
    for (const parallel::Group& g : layout_.groups) {
      const i64 tiles = base_.scheduling.sharding.stepped(g).count();
      if (g.frozen || !layout_.owns(g)) continue;
      const bool beside = stepped_by_cpu(p, g), streams = beside && r.scheduling.streams_steps && !g.by_parameter;
      (streams ? streamed_elems : beside ? cpu_elems : gpu_elems) += static_cast<double>(tiles * parallel::kTileElems);
      if (!beside) continue;
      const auto copied = [&](const std::vector<Tier>& tiers, i64 tile_bytes) {
        return (tiers[g.id] == Tier::device) != streams ? static_cast<double>(tiles * tile_bytes) : 0;
      };
      const double state = copied(p.optimizer, base_.scheduling.format_of(g).state_tile_bytes()),
                   weights = copied(p.parameters, format.weight_tile_bytes());
      const double gathered = state + copied(p.gradients, format.gradient_tile_bytes());
      const double written = state + weights, read = (g.by_parameter ? 2 : 1) * gathered + (format.update_reads_weight() ? weights : 0);
      streamed_bytes += streams ? read + written : 0;
      steps.to_gpu += streams ? read : written;
      steps.from_gpu += streams ? written : read;
    }
    steps.gpu_s = gpu_elems * rates_.unit.gpu_update_s;
    steps.beside_s = std::max({cpu_elems * rates_.unit.update_s, streamed_elems * rates_.unit.gpu_update_s,
                               streamed_bytes * rates_.host_memory_s, std::max(steps.to_gpu, steps.from_gpu) * rates_.unit.copy_s});
    return steps;
  }

  const PlanRequest& base_;
  const parallel::Layout layout_;  // the blocks and parameter groups of this pipeline rank
  const PlacementSettings& wishes_;
  const TierBudgets& budgets_;
  const Rates& rates_;
  std::vector<i64> weights_, gradients_, state_;
  i64 stepped_elems_ = 0;                                                      // elements whose optimizer updates this rank makes
  double forward_s_ = 0, backward_s_ = 0;                                      // compute time per step, in seconds
  std::map<std::tuple<bool, bool, bool, Tier>, ActivationBytes> activations_;  // key: recompute, spilled, vertical order, cache tier
  std::vector<Candidate> found_;
};

}  // namespace

std::vector<Candidate> candidates(const PlanRequest& base, const PlacementSettings& wishes, const TierBudgets& budgets,
                                  const Rates& rates) {
  return Enumeration(base, wishes, budgets, rates).all();
}

}  // namespace spillway::trainer
