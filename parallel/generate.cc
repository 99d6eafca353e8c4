#include "parallel/generate.h"

#include <algorithm>
#include <map>

#include "parallel/slab_plan.h"

namespace spillway::parallel {
namespace {

using GradientKey = std::pair<u16, u8>;     // group, use
using ActivationKey = std::pair<u16, u16>;  // block, micro-batch

// One computing instruction before memory is planned.
struct Compute {
  bool backward = false;
  u16 block = 0, micro_batch = 0;
};

// A stay of a group's weights on the device: filled by one Fetch, given up after the last use.
struct Stay {
  i64 issue = 0, last = 0;  // positions in the computing order
};

class Generator {
 public:
  Generator(const Layout& layout, const Placement& placement, const Scheduling& scheduling, bool training)
      : layout_(layout), placement_(placement), scheduling_(scheduling), training_(training) {}

  Program run() {
    program_.overlap = training_ ? scheduling_.overlap : OptimizerOverlap::none;
    order_computing();
    plan_stays();
    if (training_) add({.op = Op::Load, .lane = Lane::data});
    if (program_.overlap == OptimizerOverlap::forward) deferred_steps();
    for (i64 i = 0; i < static_cast<i64>(order_.size()); ++i) {
      fetch_weights_due(i);
      fetch_gradients_due(i);
      fetch_activations_due(i);
      compute(i);
      release_weights(i);
    }
    if (training_) {
      agree_norm();
      tails();
    }
    program_.slab_bytes = {slab_.peak_bytes(), spill_slab_.peak_bytes()};
    return std::move(program_);
  }

 private:
  size_t blocks() const { return layout_.blocks.size(); }
  i64 weight_bytes(u16 group) const { return layout_.groups[group].elems * size_of(scheduling_.format.weight); }
  i64 gradient_bytes(u16 group) const { return layout_.groups[group].elems * size_of(scheduling_.format.gradient); }
  bool weights_move(u16 group) const { return placement_.parameters[group] != Tier::device; }
  bool gradients_move(u16 group) const { return placement_.gradients[group] != Tier::device; }
  bool last(const Compute& c) const { return c.micro_batch + 1 == scheduling_.micro_batches; }
  bool vertical() const { return scheduling_.order == Order::vertical; }

  // Ranges of micro-batches that go through all blocks together: one by one, or all of them.
  void order_computing() {
    const auto n = static_cast<u16>(blocks());
    const auto k_end = static_cast<u16>(training_ ? scheduling_.micro_batches : 1);
    const u16 together = vertical() ? k_end : u16{1};
    for (u16 first = 0; first < k_end; first = static_cast<u16>(first + together)) {
      for (u16 b = 0; b < n; ++b) add_run(false, b, first, together);
      for (u16 b = n; training_ && b-- > 0;) add_run(true, b, first, together);
    }
  }

  void add_run(bool backward, u16 block, u16 first, u16 count) {
    run_begin_.push_back(static_cast<i64>(order_.size()));
    for (u16 k = 0; k < count; ++k) {
      run_of_.push_back(run_begin_.size() - 1);
      order_.push_back({backward, block, static_cast<u16>(first + k)});
    }
  }

  // The position at which what `position` needs is fetched: `prefetch` blocks before its own.
  i64 issue_at(i64 position) const {
    const size_t run = run_of_[static_cast<size_t>(position)], ahead = static_cast<size_t>(scheduling_.prefetch);
    return run_begin_[run > ahead ? run - ahead : 0];
  }

  // A group stays between two uses when it would have to be fetched again at once.
  void plan_stays() {
    std::map<u16, std::vector<Stay>> stays;
    for (i64 i = 0; i < static_cast<i64>(order_.size()); ++i) {
      for (const GroupUse& g : layout_.blocks[order_[static_cast<size_t>(i)].block]) {
        if (!weights_move(g.group)) continue;
        const i64 issue = issue_at(i);
        auto& own = stays[g.group];
        if (!own.empty() && issue <= own.back().last + 1) {
          own.back().last = i;
        } else {
          own.push_back({issue, i});
        }
      }
    }
    fetch_at_.resize(order_.size());
    release_at_.resize(order_.size());
    for (const auto& [group, all] : stays) {
      for (const Stay& stay : all) {
        fetch_at_[static_cast<size_t>(stay.issue)].push_back(group);
        release_at_[static_cast<size_t>(stay.last)].push_back(group);
      }
    }
  }

  u32 add(Instruction i) {
    count_bytes(i, layout_, placement_, scheduling_);
    std::sort(i.after.begin(), i.after.end());
    i.after.erase(std::unique(i.after.begin(), i.after.end()), i.after.end());
    std::erase_if(i.after, [&](u32 a) { return program_.head[a].lane == i.lane; });  // its lane's order says so already
    program_.head.push_back(std::move(i));
    return static_cast<u32>(program_.head.size()) - 1;
  }

  void fetch_weights_due(i64 position) {
    for (u16 group : fetch_at_[static_cast<size_t>(position)]) {
      Instruction fetch{.op = Op::Fetch, .lane = Lane::load, .what = What::weights, .group = group};
      if (const auto released = released_.find(group); released != released_.end()) fetch.after.push_back(released->second);
      if (const auto ready = ready_.find(group); ready != ready_.end()) fetch.after.push_back(ready->second);
      fetch.out = slab_.take(weight_bytes(group), fetch.after);
      weights_[group] = fetch.out;
      fetched_[group] = add(std::move(fetch));
    }
  }

  Instruction fetch_gradient(GradientKey key) {
    Instruction fetch{.op = Op::Fetch, .lane = Lane::load, .what = What::gradient, .group = key.first, .use = key.second};
    fetch.after.push_back(evicted_.at(key));
    fetch.out = slab_.take(gradient_bytes(key.first), fetch.after);
    return fetch;
  }

  // The accumulators of a later micro-batch come back ahead of their Backward, at the earliest after they left.
  void fetch_gradients_due(i64 position) {
    for (i64 i = position; i < static_cast<i64>(order_.size()) && issue_at(i) <= position; ++i) {
      const Compute& c = order_[static_cast<size_t>(i)];
      if (!c.backward || c.micro_batch == 0) continue;
      for (const GroupUse& g : layout_.blocks[c.block]) {
        const GradientKey key{g.group, g.use};
        const auto evicted = evicted_.find(key);
        if (!gradients_move(g.group) || gradients_.count(key) || evicted == evicted_.end()) continue;
        Instruction fetch = fetch_gradient(key);
        gradients_[key] = fetch.out;
        gradient_fetched_[key] = add(std::move(fetch));
      }
    }
  }

  void compute(i64 position) {
    const Compute& c = order_[static_cast<size_t>(position)];
    Instruction i{
        .op = c.backward ? Op::Backward : Op::Forward, .block = c.block, .micro_batch = c.micro_batch, .first = c.micro_batch == 0};
    i.recompute = policy(c.block).recompute;
    if (position == 0 && training_) i.after.push_back(0);
    for (const GroupUse& g : layout_.blocks[c.block]) {
      const bool moves = weights_move(g.group);
      i.weights.push_back(moves ? weights_.at(g.group) : Slot{});
      if (moves) i.after.push_back(fetched_.at(g.group));
      if (const auto ready = ready_.find(g.group); !moves && ready != ready_.end()) i.after.push_back(ready->second);
      if (c.backward) i.gradients.push_back(gradient_slot(g, i.after));
    }
    if (spills(c.block)) i.spill = spill_slot(c, i.after);
    const u32 id = add(std::move(i));
    if (spills(c.block)) spilled(c, id);
    if (c.backward && !backward_goes_on(position)) gradients_finished(c, id);
  }

  // What the last block keeps is wanted at once, unless other micro-batches come between.
  ActivationPolicy policy(u16 block) const {
    const bool at_once = block + 1u == blocks() && scheduling_.live_micro_batches() == 1;
    return training_ && !at_once ? placement_.activations[block] : ActivationPolicy{};
  }
  bool spills(u16 block) const { return policy(block).tier != Tier::device && scheduling_.spilled_bytes.at(block) > 0; }

  Slot spill_slot(const Compute& c, std::vector<u32>& after) {
    const ActivationKey key{c.block, c.micro_batch};
    if (!c.backward) activations_[key] = spill_slab_.take(scheduling_.spilled_bytes.at(c.block), after);
    if (const auto fetched = activations_fetched_.find(key); c.backward && fetched != activations_fetched_.end())
      after.push_back(fetched->second);
    return activations_.at(key);
  }

  // After a Forward what goes on to nvme is evicted; after a Backward its slot is free.
  void spilled(const Compute& c, u32 done) {
    const ActivationKey key{c.block, c.micro_batch};
    const Slot slot = activations_.at(key);
    if (!c.backward && policy(c.block).tier == Tier::host) return;
    if (!c.backward) {
      done = activations_evicted_[key] = add({.op = Op::Evict,
                                              .lane = Lane::store,
                                              .what = What::activations,
                                              .block = c.block,
                                              .micro_batch = c.micro_batch,
                                              .in = slot,
                                              .after = {done}});
    }
    spill_slab_.give_up(slot, done);
    activations_.erase(key);
  }

  void fetch_activations_due(i64 position) {
    for (i64 i = position; i < static_cast<i64>(order_.size()) && issue_at(i) <= position; ++i) {
      const Compute& c = order_[static_cast<size_t>(i)];
      const ActivationKey key{c.block, c.micro_batch};
      if (!c.backward || activations_.count(key) || !activations_evicted_.count(key)) continue;
      Instruction fetch{.op = Op::Fetch, .lane = Lane::load, .what = What::activations, .block = c.block, .micro_batch = c.micro_batch};
      fetch.after.push_back(activations_evicted_.at(key));
      fetch.out = activations_[key] = spill_slab_.take(scheduling_.spilled_bytes.at(c.block), fetch.after);
      activations_fetched_[key] = add(std::move(fetch));
    }
  }

  // The next micro-batch adds to the same accumulators at once.
  bool backward_goes_on(i64 position) const {
    const auto next = static_cast<size_t>(position) + 1;
    return next < order_.size() && run_of_[next] == run_of_[next - 1];
  }

  Slot gradient_slot(const GroupUse& g, std::vector<u32>& after) {
    if (!gradients_move(g.group)) return {};
    const GradientKey key{g.group, g.use};
    if (gradients_.count(key)) {
      if (const auto fetched = gradient_fetched_.find(key); fetched != gradient_fetched_.end()) after.push_back(fetched->second);
    } else {
      gradients_[key] = slab_.take(gradient_bytes(g.group), after);
    }
    return gradients_.at(key);
  }

  // After a block's Backward: sum tied uses and reduce on the last micro-batch, then send what moves to its tier.
  void gradients_finished(const Compute& c, u32 backward) {
    for (const GroupUse& g : layout_.blocks[c.block]) {
      u32 done = backward;
      if (last(c) && g.use == 0) {
        add_tied_uses(layout_.groups[g.group]);
        Instruction reduce{.op = Op::Reduce, .group = g.group};
        if (gradients_move(g.group)) reduce.in = gradients_.at({g.group, 0});
        done = add(std::move(reduce));
      }
      if (gradients_move(g.group)) done = evict({g.group, g.use}, done);
      if (last(c) && g.use == 0 && program_.overlap == OptimizerOverlap::backward) step(program_.head, g.group, {done});
    }
  }

  void add_tied_uses(const Group& group) {
    for (u8 use = 1; use < group.uses.size(); ++use) {
      Instruction sum{.op = Op::AddTied, .group = group.id, .use = use};
      if (gradients_move(group.id)) {
        Instruction fetch = fetch_gradient({group.id, use});
        sum.in = fetch.out;
        sum.out = gradients_.at({group.id, 0});
        sum.after.push_back(add(std::move(fetch)));
      }
      const u32 id = add(std::move(sum));
      if (gradients_move(group.id)) slab_.give_up(program_.head[id].in, id);
    }
  }

  u32 evict(GradientKey key, u32 after) {
    const Slot slot = gradients_.at(key);
    Instruction evict{
        .op = Op::Evict, .lane = Lane::store, .what = What::gradient, .group = key.first, .use = key.second, .in = slot, .after = {after}};
    evicted_[key] = add(std::move(evict));
    slab_.give_up(slot, evicted_[key]);
    gradients_.erase(key);
    gradient_fetched_.erase(key);
    return evicted_[key];
  }

  void release_weights(i64 position) {
    for (u16 group : release_at_[static_cast<size_t>(position)]) {
      Instruction release{.op = Op::Release, .what = What::weights, .group = group, .in = weights_.at(group)};
      released_[group] = add(std::move(release));
      slab_.give_up(weights_.at(group), released_[group]);
      weights_.erase(group);
    }
  }

  void agree_norm() {
    // No speculative write outlives the choice of the tail.
    if (program_.overlap == OptimizerOverlap::backward) add({.op = Op::Land, .lane = Lane::optimizer});
    Instruction agree{.op = Op::AgreeNorm};
    for (const auto& [key, id] : evicted_) agree.after.push_back(id);
    add(std::move(agree));
  }

  // A Step for each bucket of the group; returns the last one's number.
  u32 step(List& list, u16 group, const std::vector<u32>& after) {
    for (u16 bucket : layout_.groups[group].buckets) {
      Instruction step{.op = Op::Step, .lane = Lane::optimizer, .what = What::state, .group = group, .bucket = bucket, .after = after};
      count_bytes(step, layout_, placement_, scheduling_);
      list.push_back(std::move(step));
    }
    return static_cast<u32>(list.size()) - 1;
  }

  // The step before is finished in this forward, block by block. Weights on nvme are there to be fetched once they have landed, which is
  // waited for one group late, so that a group's writes run beside the next one's reads.
  void deferred_steps() {
    u16 written = kNone;
    for (u16 group : groups_by_first_use()) {
      ready_[group] = step(program_.head, group, {});
      if (written != kNone) land(written);
      written = placement_.parameters[group] == Tier::nvme ? group : kNone;
    }
    if (written != kNone) land(written);
    add({.op = Op::Commit, .lane = Lane::optimizer});
  }

  void land(u16 group) { ready_[group] = add({.op = Op::Land, .lane = Lane::optimizer, .group = group}); }

  std::vector<u16> groups_by_first_use() const {
    std::vector<u16> groups;
    for (const auto& block : layout_.blocks) {
      for (const GroupUse& g : block) {
        if (std::find(groups.begin(), groups.end(), g.group) == groups.end()) groups.push_back(g.group);
      }
    }
    return groups;
  }

  void step_all(List& list) {
    for (const Group& g : layout_.groups) step(list, g.id, {});
    list.push_back({.op = Op::Commit, .lane = Lane::optimizer});
  }

  static void publish(List& list) {
    const auto commit = static_cast<u32>(list.size()) - 1;
    list.push_back({.op = Op::Publish, .after = {commit}});
  }

  void tails() {
    switch (program_.overlap) {
      case OptimizerOverlap::none:
        step_all(program_.commit);
        return publish(program_.commit);
      case OptimizerOverlap::backward:
        program_.commit.push_back({.op = Op::Commit, .lane = Lane::optimizer});
        publish(program_.commit);
        step_all(program_.redo);
        return publish(program_.redo);
      case OptimizerOverlap::forward:
        return step_all(program_.deferred);
    }
  }

  const Layout& layout_;
  const Placement& placement_;
  const Scheduling& scheduling_;
  const bool training_;
  std::vector<Compute> order_;
  std::vector<size_t> run_of_;                           // of each position: its run, the micro-batches that pass a block one after another
  std::vector<i64> run_begin_;                           // of each run: its first position
  std::map<u16, u32> ready_;                             // overlap forward: the instruction after which the group's new weights are there
  std::vector<std::vector<u16>> fetch_at_, release_at_;  // groups, by position in the computing order
  SlabPlan slab_{Slab::moving}, spill_slab_{Slab::spill};
  Program program_;
  std::map<u16, Slot> weights_;            // where the group's weights lie now
  std::map<u16, u32> fetched_, released_;  // the group's last Fetch and Release
  std::map<GradientKey, Slot> gradients_;  // where the accumulator lies now
  std::map<GradientKey, u32> gradient_fetched_, evicted_;
  std::map<ActivationKey, Slot> activations_;  // where what the block kept lies now
  std::map<ActivationKey, u32> activations_evicted_, activations_fetched_;
};

}  // namespace

void count_bytes(Instruction& i, const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  const optim::StateFormat& format = scheduling.format;
  i.read_bytes = i.written_bytes = {};
  const auto moves = [](Tier tier) { return tier != Tier::device; };
  if (i.spill.bytes > 0 && placement.activations[i.block].tier == Tier::host) {
    (i.op == Op::Forward ? i.written_bytes : i.read_bytes)[static_cast<size_t>(Tier::host)] = i.spill.bytes;
  }
  if (i.what == What::activations) {
    (i.op == Op::Fetch ? i.read_bytes : i.written_bytes)[static_cast<size_t>(Tier::nvme)] = (i.op == Op::Fetch ? i.out : i.in).bytes;
  } else if (i.op == Op::Fetch || i.op == Op::Evict) {
    const Tier tier = i.what == What::weights ? placement.parameters[i.group] : placement.gradients[i.group];
    auto& bytes = i.op == Op::Fetch ? i.read_bytes : i.written_bytes;
    const DType dtype = i.what == What::weights ? format.weight : resting_gradient(placement, scheduling, {i.group, i.use});
    bytes[static_cast<size_t>(tier)] = layout.groups[i.group].elems * size_of(dtype);
  }
  if (i.op == Op::Step) {
    const i64 tiles = layout.buckets[i.bucket].tiles;
    const auto move = [&](Tier tier, i64 tile_bytes, bool written) {
      if (!moves(tier)) return;
      i.read_bytes[static_cast<size_t>(tier)] += tiles * tile_bytes;
      if (written) i.written_bytes[static_cast<size_t>(tier)] += tiles * tile_bytes;
    };
    move(placement.gradients[i.group], kTileElems * size_of(resting_gradient(placement, scheduling, {i.group, 0})), false);
    move(placement.parameters[i.group], format.weight_tile_bytes(), true);
    move(placement.optimizer[i.group], format.state_tile_bytes(), true);
  }
}

Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  return Generator(layout, placement, scheduling, true).run();
}

Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  return Generator(layout, placement, scheduling, false).run();
}

}  // namespace spillway::parallel
