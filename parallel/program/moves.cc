#include "parallel/program/moves.h"

#include "parallel/program/messages.h"

namespace spillway::parallel {
namespace {

// A Stay is a period in which a group's weights stay on the device. One Fetch copies them there at its beginning, and their memory is
// freed after the last use.
struct Stay {
  i64 issue = 0, last = 0;  // positions in the computing order: that of the Fetch, and that of the last use of the weights
};

// Appends to `after` the instruction that is recorded for `key`, if there is one.
template <class Key>
void wait_for(const std::map<Key, u32>& instructions, const Key& key, std::vector<u32>& after) {
  if (const auto found = instructions.find(key); found != instructions.end()) after.push_back(found->second);
}
void wait_for(const std::map<u16, std::vector<u32>>& instructions, u16 key, std::vector<u32>& after) {
  if (const auto found = instructions.find(key); found != instructions.end())
    after.insert(after.end(), found->second.begin(), found->second.end());
}

// Returns the lane (sequence of instructions that run in order) for a copy: `own` if copies run beside computing, else the compute lane.
Lane lane_of(const Residence& moved, Lane own) { return moved.beside ? own : Lane::compute; }

}  // namespace

void WeightMoves::plan_stays(const ComputingOrder& order) {
  std::map<u16, std::vector<Stay>> stays;
  for (i64 i = 0; i < order.size(); ++i) {
    for (const GroupUse& g : list_.layout.blocks[order[i].block]) {
      const Residence& weights = list_.residency[g.group].weights;
      if (!weights.moves || !list_.reads_weights(order[i])) continue;
      const bool ahead = weights.beside || weights.split;
      const i64 issue = ahead ? order.issue_at(i) : i;
      auto& own = stays[g.group];
      if (!own.empty() && issue <= own.back().last + 1) {
        own.back().last = i;
      } else {
        own.push_back({issue, i});
      }
    }
  }
  fetch_at_.resize(static_cast<size_t>(order.size()));
  release_at_.resize(static_cast<size_t>(order.size()));
  for (const auto& [group, all] : stays) {
    for (const Stay& stay : all) {
      fetch_at_[static_cast<size_t>(stay.issue)].push_back(group);
      release_at_[static_cast<size_t>(stay.last)].push_back(group);
    }
  }
}

void WeightMoves::fetch_due(i64 position) {
  for (u16 group : fetch_at_[static_cast<size_t>(position)]) {
    std::vector<u32> after;
    wait_for(released_, group, after);
    wait_for(ready_, group, after);
    slots_[group] = slab_.take(list_.weight_bytes(group), after);
    fetched_[group] =
        list_.residency[group].weights.split ? gather(group, std::move(after)) : fetch(group, whole(list_.layout.groups[group]), after);
  }
}

u32 WeightMoves::fetch(u16 group, TileRange tiles, std::vector<u32> after) {
  Instruction fetch{.op = Op::Fetch, .lane = lane_of(list_.residency[group].weights, Lane::load), .what = What::weights};
  fetch.group = group;
  fetch.tiles = tiles;
  fetch.after = std::move(after);
  fetch.out = part_of(slots_.at(group), tiles, list_.weight_tile_bytes());
  return list_.add(std::move(fetch));
}

// All-gathers the weights of a sharded group into their device memory. This rank's shard is first fetched into its place there, unless it
// is stored on the device; then it is read where it is stored.
u32 WeightMoves::gather(u16 group, std::vector<u32> after) {
  Instruction gather{.op = Op::Gather, .lane = Lane::data, .what = What::weights, .group = group};
  gather.tiles = list_.residency[group].weights.held;
  gather.out = slots_.at(group);
  if (list_.residency[group].weights.tier != Tier::device && gather.tiles.count() > 0) {
    after = {fetch(group, gather.tiles, std::move(after))};
    gather.in = part_of(gather.out, gather.tiles, list_.weight_tile_bytes());
  }
  gather.after = std::move(after);
  return list_.add(std::move(gather));
}

void WeightMoves::release_due(i64 position) {
  for (u16 group : release_at_[static_cast<size_t>(position)]) {
    const Slot slot = slots_.at(group);
    released_[group] = list_.add({.op = Op::Release, .what = What::weights, .group = group, .in = slot});
    slab_.give_up(slot, released_[group]);
    slots_.erase(group);
  }
}

Slot WeightMoves::slot(u16 group, std::vector<u32>& after) const {
  if (!list_.residency[group].weights.moves) {
    wait_for(ready_, group, after);
    return {};
  }
  after.push_back(fetched_.at(group));
  return slots_.at(group);
}

void LeavingSlots::add(const Slot& slot, u32 instruction, bool beside) {
  if (beside && list_.scheduling.copy_engines && list_.scheduling.prefetch > 0) {
    leaving_.push_back({slot, instruction, position_});
  } else {
    slab_.give_up(slot, instruction);
  }
}

void LeavingSlots::reach(i64 position) {
  position_ = position;
  std::erase_if(leaving_, [&](const Leaving& l) {
    if (l.position + 1 >= position) return false;
    slab_.give_up(l.slot, l.instruction);
    return true;
  });
}

void GradientMoves::fetch_due(i64 position) {
  leaving_.reach(position);
  order_.for_due(position, [&](const Compute& c) {
    if (!makes_weight_gradients(c.op) || c.micro_batch == 0) return;
    for (const GroupUse& g : list_.layout.blocks[c.block]) {
      const Key key{g.group, g.use};
      const GroupResidency& group = list_.residency[g.group];
      if (!group.gradients.moves || slots_.count(key) || before_.count(key) || !evicted_.count(key)) continue;
      const bool each = list_.scheduling.sums_each();
      if (each && group.stepped.count() == 0) continue;
      // With a CPU, an accumulator in host memory is not fetched ahead of time. A whole accumulator is fetched at this
      // position, just before its backward. A sum of earlier micro-batches is fetched later, just before it is added.
      if (group.gradients.beside || (&c == &order_[position] && !each)) fetch(key);
    }
  });
}

void GradientMoves::fetch(Key key) {
  Instruction fetch{.op = Op::Fetch, .lane = lane_of(list_.residency[key.first].gradients, Lane::load), .what = What::gradient};
  fetch.group = key.first;
  fetch.use = key.second;
  const bool sum = list_.scheduling.sums_each();
  fetch.tiles = sum ? list_.residency[key.first].stepped : whole(list_.layout.groups[key.first]);
  fetch.after.push_back(evicted_.at(key));
  fetch.out = (sum ? before_ : slots_)[key] = slab_.take(fetch.tiles.count() * list_.gradient_tile_bytes(), fetch.after);
  fetched_[key] = list_.add(std::move(fetch));
}

Slot GradientMoves::slot(const GroupUse& use, std::vector<u32>& after) {
  if (!list_.residency[use.group].gradients.moves) return {};
  const Key key{use.group, use.use};
  if (slots_.count(key)) {
    wait_for(fetched_, key, after);
  } else {
    slots_[key] = slab_.take(list_.gradient_bytes(use.group), after);
  }
  return slots_.at(key);
}

void GradientMoves::computed(const GroupUse& use, bool last, u32 backward) {
  if (last || list_.scheduling.sums_each()) return exchange(use, backward);
  if (list_.residency[use.group].gradients.moves) evict({use.group, use.use}, backward, whole(list_.layout.groups[use.group]));
}

u32 GradientMoves::finished(u16 group, u32 backward) {
  const Group& g = list_.layout.groups[group];
  receive_tied_uses(g);
  add_tied_uses(g);
  const u32 reduced = reduce(group, backward);
  const GroupResidency& r = list_.residency[group];
  if (!r.gradients.moves || r.gradient_stays) return reduced;
  const Key key{group, u8{0}};
  return r.gradients.beside ? evict(key, reduced, r.stepped) : left(key, reduced);
}

// Sums the accumulator over the ranks in place: this rank's shard only, or all of it if gradients are not sharded.
void GradientMoves::exchange(const GroupUse& use, u32 after) {
  summed_[{use.group, use.use}] = after;
  if (list_.alone()) return;
  Instruction exchange{.op = Op::Exchange, .lane = Lane::data, .what = What::gradient, .group = use.group, .use = use.use};
  exchange.tiles = list_.residency[use.group].stepped;
  if (list_.residency[use.group].gradients.moves) exchange.in = slots_.at({use.group, use.use});
  exchange.after = {after};
  summed_[{use.group, use.use}] = list_.add(std::move(exchange));
}

void GradientMoves::summed(const GroupUse& use, bool first, bool last) {
  const Key key{use.group, use.use};
  if (!first && list_.residency[use.group].stepped.count() > 0) accumulate(key);
  if (!last) evict(key, summed_.at(key), list_.residency[use.group].stepped);
}

void GradientMoves::accumulate(Key key) {
  if (!before_.count(key)) fetch(key);
  Instruction sum{.op = Op::Accumulate, .what = What::gradient, .group = key.first, .use = key.second};
  sum.tiles = list_.residency[key.first].stepped;
  sum.in = before_.at(key);
  sum.out = part_of(slots_.at(key), sum.tiles, list_.gradient_tile_bytes());
  sum.after = {summed_.at(key), fetched_.at(key)};
  summed_[key] = list_.add(std::move(sum));
  slab_.give_up(before_.at(key), summed_.at(key));
  before_.erase(key);
}

u32 GradientMoves::reduce(u16 group, u32 backward) {
  Instruction reduce{.op = Op::Reduce, .group = group};
  reduce.tiles = list_.residency[group].stepped;
  if (list_.residency[group].gradients.moves) reduce.in = part_of(slots_.at({group, 0}), reduce.tiles, list_.gradient_tile_bytes());
  reduce.after.push_back(backward);
  wait_for(summed_, Key{group, u8{0}}, reduce.after);
  return list_.add(std::move(reduce));
}

void GradientMoves::give(u16 group) {
  const Group& g = list_.layout.groups[group];
  for (u8 use = 0; use < g.uses.size(); ++use) {
    const Key key{group, use};
    if (!list_.layout.here(g.uses[use])) continue;
    Instruction send{.op = Op::SendTied, .lane = Lane::send, .what = What::gradient, .group = group, .use = use};
    send.peer = list_.layout.rank_of[g.owner_block];
    send.tiles = list_.residency[group].stepped;
    send.after = {summed_.at(key)};
    if (list_.residency[group].gradients.moves) send.in = part_of(slots_.at(key), send.tiles, list_.gradient_tile_bytes());
    const u32 sent = evicted_[key] = list_.add(std::move(send));
    if (list_.residency[group].gradients.moves) left(key, sent);
  }
}

void GradientMoves::receive_tied_uses(const Group& group) {
  for (const auto& [use, rank] : uses_elsewhere(list_.layout, group)) {
    const Key key{group.id, use};
    Instruction receive{.op = Op::ReceiveTied, .lane = Lane::receive, .what = What::gradient, .group = group.id, .use = use};
    receive.peer = rank;
    receive.tiles = list_.residency[group.id].stepped;
    if (list_.residency[group.id].gradients.moves) {
      slots_[key] = slab_.take(list_.gradient_bytes(group.id), receive.after);
      receive.out = part_of(slots_.at(key), receive.tiles, list_.gradient_tile_bytes());
    }
    summed_[key] = list_.add(std::move(receive));
  }
}

void GradientMoves::add_tied_uses(const Group& group) {
  for (u8 use = 1; use < group.uses.size(); ++use) {
    Instruction sum{.op = Op::AddTied, .group = group.id, .use = use};
    sum.tiles = list_.residency[group.id].stepped;
    for (u8 u : {u8{0}, use}) wait_for(summed_, Key{group.id, u}, sum.after);
    const auto addend = slots_.find({group.id, use});
    if (addend != slots_.end()) {
      sum.in = part_of(addend->second, sum.tiles, list_.gradient_tile_bytes());
      sum.out = part_of(slots_.at({group.id, 0}), sum.tiles, list_.gradient_tile_bytes());
    }
    const u32 id = list_.add(std::move(sum));
    if (addend == slots_.end()) continue;
    slab_.give_up(addend->second, id);
    slots_.erase(addend);
  }
}

u32 GradientMoves::evict(Key key, u32 after, TileRange tiles) {
  Instruction evict{.op = Op::Evict, .lane = lane_of(list_.residency[key.first].gradients, Lane::store), .what = What::gradient};
  evict.group = key.first;
  evict.use = key.second;
  evict.tiles = tiles;
  evict.in = part_of(slots_.at(key), tiles, list_.gradient_tile_bytes());
  evict.after = {after};
  return left(key, list_.add(std::move(evict)));
}

// Frees the accumulator's device memory after this instruction, which copies the accumulator to another tier.
u32 GradientMoves::left(Key key, u32 instruction) {
  leaving_.add(slots_.at(key), instruction, list_.residency[key.first].gradients.beside);
  slots_.erase(key);
  fetched_.erase(key);
  evicted_[key] = instruction;
  return instruction;
}

Slot GradientMoves::staying(u16 group) const {
  const auto slot = slots_.find({group, 0});
  return slot == slots_.end() ? Slot() : part_of(slot->second, list_.residency[group].stepped, list_.gradient_tile_bytes());
}

std::vector<u32> GradientMoves::evictions() const {
  std::vector<u32> all;
  for (const auto& [key, id] : evicted_) all.push_back(id);
  return all;
}

ActivationPolicy ActivationMoves::policy(u16 block) const {
  const bool at_once = block + 1u == list_.layout.blocks.size() && order_.live(block) == 1;
  const bool kept = training_ && block >= list_.layout.first_trained_block;
  return kept && !at_once ? list_.placement.activations[block] : ActivationPolicy{};
}

bool ActivationMoves::keeps_logits(u16 block) const {
  const ActivationPolicy kept = policy(block);
  const bool last = block + 1u == list_.layout.blocks.size();
  return training_ && last && list_.placement.keeps_logits && (kept.recompute || kept.tier == Tier::device);
}

Slot ActivationMoves::slot(const Compute& c, std::vector<u32>& after) {
  if (!spills(c.block) || c.op == Op::BackwardWeight) return {};
  const Key key{c.block, c.micro_batch};
  if (c.op == Op::Forward) {
    slots_[key] = slab_.take(list_.scheduling.spilled_bytes.at(c.block), after);
  } else {
    wait_for(fetched_, key, after);
  }
  return slots_.at(key);
}

void ActivationMoves::computed(const Compute& c, u32 done) {
  const bool stays = c.op == Op::Forward && !list_.scheduling.activations_travel(policy(c.block).tier);
  if (!spills(c.block) || stays || c.op == Op::BackwardWeight) return;
  const Key key{c.block, c.micro_batch};
  const Slot slot = slots_.at(key);
  if (c.op == Op::Forward) {
    Instruction evict = move(Op::Evict, Lane::store, key);
    evict.in = slot;
    evict.after = {done};
    evicted_[key] = list_.add(std::move(evict));
    leaving_.add(slot, evicted_[key], true);
  } else {
    slab_.give_up(slot, done);
  }
  slots_.erase(key);
}

Instruction ActivationMoves::move(Op op, Lane lane, Key key) {
  const auto [block, micro_batch] = key;
  Instruction i{.op = op, .lane = lane, .what = What::activations, .block = block, .micro_batch = micro_batch};
  if (!live_.contains(block)) live_[block] = order_.live(block);
  const i64 place = micro_batch % live_[block], tiles = list_.scheduling.spilled_tiles(block);
  i.tiles = {place * tiles, (place + 1) * tiles};
  return i;
}

void ActivationMoves::fetch_due(i64 position) {
  leaving_.reach(position);
  order_.for_due(position, [&](const Compute& c) {
    const Key key{c.block, c.micro_batch};
    if (!makes_input_gradient(c.op) || slots_.count(key) || !evicted_.count(key)) return;
    Instruction fetch = move(Op::Fetch, Lane::load, key);
    fetch.after.push_back(evicted_.at(key));
    fetch.out = slots_[key] = slab_.take(list_.scheduling.spilled_bytes.at(c.block), fetch.after);
    fetched_[key] = list_.add(std::move(fetch));
  });
}

}  // namespace spillway::parallel
