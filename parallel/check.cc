#include "parallel/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "parallel/list_walk.h"

namespace spillway::parallel {
namespace {

// Reduced gradients between two lists: the slots that hold one, and the groups whose gradient rests in its tier.
struct Gradients {
  std::vector<std::pair<Slot, u16>> in_slots;
  std::set<u16> at_rest;
};

class Checker : ListWalk {
 public:
  Checker(const List& list, const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling,
          const Gradients& found)
      : ListWalk(list, program.slab_bytes),
        overlap_(&list == &program.head ? program.overlap : OptimizerOverlap::none),
        layout_(layout),
        placement_(placement),
        scheduling_(scheduling),
        at_rest_(found.at_rest) {
    for (const auto& [slot, group] : found.in_slots) holds_.emplace_back(slot, Content{What::gradient, {group, 0}, kBefore});
  }

  /// What it leaves.
  Gradients run() {
    for (u32 i = 0; i < list_.size(); ++i) {
      order(i);
      contents(i);
    }
    steps_finished();
    Gradients left{{}, at_rest_};
    for (const auto& [slot, held] : holds_) {
      if (held.what == What::gradient && held.of.second == 0) left.in_slots.emplace_back(slot, held.of.first);
    }
    return left;
  }

 private:
  using ListWalk::expect;
  void expect(u32 i, const Slot& slot, What what, u16 group, u8 use) {
    const bool moves = what == What::weights ? weights_move(placement_, scheduling_, group) : gradient_moves(group);
    if (moves || slot.bytes > 0) expect(i, slot, {what, {group, use}, 0});
  }

  // Data-parallel ranks meet in one order.
  void meeting(u32 i) {
    const Op op = list_[i].op;
    const bool meets = op == Op::Load || op == Op::Gather || op == Op::Exchange || op == Op::AgreeNorm;
    if (!meets || scheduling_.sharding.ranks == 1) return;
    if (met_ && !before(*met_, i)) refuse(i, fmt::format("meets other ranks, maybe before instruction {} does", *met_));
    met_ = i;
  }

  void contents(u32 i) {
    const Instruction& now = list_[i];
    meeting(i);
    switch (now.op) {
      case Op::Fetch:
        return fetch(i);
      case Op::Forward:
      case Op::Backward:
        return block(i);
      case Op::Release:
        expect(i, now.in, What::weights, now.group, 0);
        released_[now.group] = i;
        return touch(i, now.in, Access::give_up);
      case Op::Gather:
        return now.out.bytes > 0 ? gather(i) : spread(i);
      case Op::Exchange:
        return exchange(i);
      case Op::AddTied:
        unadded_.erase({now.group, now.use});
        exchanged_before(i, {now.group, now.use});
        exchanged_before(i, {now.group, u8{0}});
        if (stepped(now.group).count() == 0) return;
        expect(i, now.in, What::gradient, now.group, now.use);
        expect(i, now.out, What::gradient, now.group, 0);
        return rewrite(i, now.out);
      case Op::Reduce:
        exchanged_before(i, {now.group, u8{0}});
        if (stepped(now.group).count() > 0) expect(i, now.in, What::gradient, now.group, 0);
        for (const auto& [group, use] : unadded_) {
          if (group == now.group) refuse(i, fmt::format("reduces before use {} of its weight is added", use));
        }
        reduced_[now.group] = i;
        if (gradient_moves(now.group) && placement_.gradients[now.group] != Tier::nvme) gradient_leaves(i);
        return;
      case Op::SendActivation:
      case Op::SendGradient:
        expect(i, now.in, {now.what, {now.block, now.micro_batch}, 0});
        return touch(i, now.in, Access::give_up);
      case Op::ReceiveActivation:
      case Op::ReceiveGradient:
        return fill(i, now.out, {now.what, {now.block, now.micro_batch}, i});
      case Op::SendTied:
      case Op::ReceiveTied:
        return now.what == What::weights ? tied_weights(i) : tied_gradient(i);
      case Op::AgreeNorm:
        if (overlap_ == OptimizerOverlap::backward) all_spread(i);
        return agree_norm(i);
      case Op::Commit:
      case Op::Publish:
        return all_spread(i);
      case Op::Step:
        return step(i);
      case Op::Land:
        for (auto& [group, last] : stepped_) {
          if (now.group == kNone || now.group == group) landed_[group] = i;
        }
        return;
      case Op::Evict:
        if (now.what == What::activations) return evict_activations(i);
        if (now.tiles.count() > 0) expect(i, now.in, What::gradient, now.group, now.use);
        return gradient_leaves(i);
      default:
        return;
    }
  }

  void gradient_leaves(u32 i) {
    touch(i, list_[i].in, Access::give_up);
    evicted_[{list_[i].group, list_[i].use}] = i;
    if (list_[i].use == 0 && reduced_.count(list_[i].group)) at_rest_.insert(list_[i].group);
  }

  bool gradient_moves(u16 group) const { return gradients_move(placement_, scheduling_, layout_.groups[group]); }
  TileRange stepped(u16 group) const { return scheduling_.sharding.stepped(layout_.groups[group]); }

  void gather(u32 i) {
    const Instruction& now = list_[i];
    if (!weights_split(placement_, scheduling_, now.group)) refuse(i, "gathers weights that are not split");
    stepped_before(i, now.group);
    if (placement_.parameters[now.group] != Tier::device && now.tiles.count() > 0) {
      expect(i, now.in, What::weights, now.group, 0);
    } else {
      absent(i, now.group);
    }
    if (now.out.bytes != layout_.groups[now.group].elems * size_of(scheduling_.format.weight))
      refuse(i, "its slot is not the size of the group");
    fill(i, now.out, {What::weights, {now.group, 0}, i});
  }

  // What the ranks have stepped.
  void spread(u32 i) {
    const u16 group = list_[i].group;
    if (!weights_spread(placement_, scheduling_, layout_.groups[group]))
      refuse(i, "gathers weights that rest whole and are not stepped in parts");
    const auto step = stepped_.find(group);
    if (stepped(group).count() > 0 && (step == stepped_.end() || !before(step->second, i)))
      refuse(i, "gathers weights before they are stepped");
    spread_[group] = i;
  }

  void all_spread(u32 i) const {
    for (const auto& [group, step] : stepped_) {
      if (!weights_spread(placement_, scheduling_, layout_.groups[group])) continue;
      const auto spread = spread_.find(group);
      if (spread == spread_.end() || !before(spread->second, i))
        refuse(i, fmt::format("comes before the weights of group {}, stepped by instruction {}, are gathered", group, step));
    }
  }

  // The part this rank goes on with takes the place of its own accumulator.
  void exchange(u32 i) {
    const Instruction& now = list_[i];
    const std::pair key{now.group, now.use};
    const auto backward = backward_.find(key);
    if (backward == backward_.end() || !before(backward->second, i)) refuse(i, "sums a gradient over the ranks before its last Backward");
    if (exchanged_.count(key)) refuse(i, "sums a gradient over the ranks that is summed already");
    expect(i, now.in, What::gradient, now.group, now.use);
    exchanged_[key] = i;
    if (now.in.bytes == 0) return;
    const TileRange own = stepped(now.group);
    const i64 tile_bytes = now.in.bytes / whole(layout_.groups[now.group]).count();
    touch(i, now.in, Access::write);
    if (own.count() > 0) fill(i, {now.in.offset + own.begin * tile_bytes, own.count() * tile_bytes, now.in.slab}, {What::gradient, key, i});
  }

  void exchanged_before(u32 i, std::pair<u16, u8> gradient) const {
    if (scheduling_.sharding.ranks == 1) return;
    const auto exchanged = exchanged_.find(gradient);
    if (exchanged == exchanged_.end() || !before(exchanged->second, i))
      refuse(i, fmt::format("comes before use {} of its gradient is summed over the ranks", gradient.second));
  }

  bool stays(u16 group) const {
    return std::any_of(holds_.begin(), holds_.end(), [&](const auto& held) {
      return held.second == Content{What::gradient, {group, u16{0}}, 0};
    });
  }

  bool rests(u32 i, std::pair<u16, u8> gradient) const {
    const auto evicted = evicted_.find(gradient);
    return evicted != evicted_.end() && before(evicted->second, i);
  }

  void evict_activations(u32 i) {
    const Instruction& now = list_[i];
    expect(i, now.in, {What::activations, {now.block, now.micro_batch}, 0});
    touch(i, now.in, Access::give_up);
    activations_evicted_[{now.block, now.micro_batch}] = i;
  }

  void fetch_activations(u32 i) {
    const Instruction& now = list_[i];
    const auto evicted = activations_evicted_.find({now.block, now.micro_batch});
    if (evicted == activations_evicted_.end() || !before(evicted->second, i)) refuse(i, "fetches activations that were not evicted before");
    fill(i, now.out, {What::activations, {now.block, now.micro_batch}, i});
  }

  void spill(u32 i) {
    const Instruction& now = list_[i];
    const Content kept{What::activations, {now.block, now.micro_batch}, i};
    if (now.op == Op::Forward && now.spill.bytes > 0) {
      fill(i, now.spill, kept);
      spilled_.insert(kept.of);
    }
    if (now.op == Op::Backward && (now.spill.bytes > 0 || spilled_.count(kept.of))) {
      expect(i, now.spill, kept);
      touch(i, now.spill, Access::give_up);
    }
  }

  void fetch(u32 i) {
    const Instruction& now = list_[i];
    if (now.what == What::activations) return fetch_activations(i);
    if (now.what == What::gradient && !rests(i, {now.group, now.use})) refuse(i, "fetches a gradient that has not been evicted before");
    if (now.what == What::weights) {
      stepped_before(i, now.group);
      absent(i, now.group);
    }
    if (now.out.bytes != now.tiles.count() * kTileElems * element_bytes(now)) refuse(i, "its slot is not the size of what is fetched");
    fill(i, now.out, {now.what, {now.group, now.use}, i});
  }

  i64 element_bytes(const Instruction& now) const {
    return size_of(now.what == What::weights ? scheduling_.format.weight : scheduling_.format.gradient);
  }

  // Weights that come to a slot are not there yet, and those of before are gone.
  void absent(u32 i, u16 group) const {
    for (const auto& [slot, held] : holds_) {
      if (held == Content{What::weights, {group, u16{0}}, 0}) refuse(i, "fetches weights that are there already");
    }
    if (const auto released = released_.find(group); released != released_.end() && !before(released->second, i))
      refuse(i, fmt::format("does not wait for instruction {}, which releases these weights", released->second));
  }

  // What crosses pipeline ranks is read from its slot and put into one.
  void messages(u32 i) {
    const Instruction& now = list_[i];
    const bool forward = now.op == Op::Forward;
    const What what = forward ? What::output : What::output_gradient;
    const auto before = static_cast<u16>(now.block - 1);
    const u16 read = forward ? before : now.block, made = forward ? now.block : before;
    if (crosses(read)) expect(i, now.in, {what, {read, now.micro_batch}, 0});
    if (crosses(read)) touch(i, now.in, Access::give_up);
    const bool none = !forward && now.block <= layout_.first_trained_block;
    if (none || !crosses(made)) return;
    if (now.out.bytes == 0) refuse(i, "has no slot for what another rank reads");
    fill(i, now.out, {what, {made, now.micro_batch}, i});
  }
  bool crosses(u16 block) const { return block != kNone && layout_.crosses(block); }

  // The owner's are stepped; where they come to they are as good as stepped and landed.
  void tied_weights(u32 i) {
    const u16 group = list_[i].group;
    if (list_[i].op == Op::ReceiveTied) {
      stepped_[group] = landed_[group] = i;
      return;
    }
    const auto step = stepped_.find(group);
    if (stepped(group).count() > 0 && (step == stepped_.end() || !before(step->second, i)))
      refuse(i, "sends weights before they are stepped");
  }

  void tied_gradient(u32 i) {
    const Instruction& now = list_[i];
    const std::pair key{now.group, now.use};
    if (now.op == Op::ReceiveTied) {
      unadded_.insert(key);
      exchanged_[key] = i;
      if (now.out.bytes > 0) fill(i, now.out, {What::gradient, key, i});
      return;
    }
    exchanged_before(i, key);
    const auto backward = backward_.find(key);
    if (backward == backward_.end() || !before(backward->second, i)) refuse(i, "sends a gradient before its last Backward");
    if (now.tiles.count() > 0) expect(i, now.in, What::gradient, now.group, now.use);
    touch(i, now.in, Access::give_up);
    unadded_.erase(key);
    given_[key] = i;
  }

  void block(u32 i) {
    const Instruction& now = list_[i];
    const auto& groups = layout_.blocks.at(now.block);
    spill(i);
    messages(i);
    if (now.weights.size() != groups.size() || (now.op == Op::Backward && now.gradients.size() != groups.size()))
      refuse(i, "names too few slots");
    for (size_t g = 0; g < groups.size(); ++g) {
      stepped_before(i, groups[g].group);
      const bool reads = now.op == Op::Forward || now.recompute || layout_.backward_reads_weights[now.block];
      if (reads || now.weights[g].bytes > 0) expect(i, now.weights[g], What::weights, groups[g].group, 0);
      if (now.op == Op::Backward && !layout_.groups[groups[g].group].frozen) {
        if (groups[g].use > 0) unadded_.insert({groups[g].group, groups[g].use});
        reduced_.erase(groups[g].group);
        backward_[{groups[g].group, groups[g].use}] = i;
        exchanged_.erase({groups[g].group, groups[g].use});
        at_rest_.erase(groups[g].group);
      }
      if (now.op == Op::Forward || now.gradients[g].bytes == 0) continue;
      if (!now.first) expect(i, now.gradients[g], What::gradient, groups[g].group, groups[g].use);
      fill(i, now.gradients[g], {What::gradient, {groups[g].group, groups[g].use}, i});
    }
  }

  // Every gradient is final, and is where a Step may look for it.
  void agree_norm(u32 i) const {
    for (const Group& g : layout_.groups) {
      if (g.frozen) continue;
      if (!layout_.owns(g)) {
        all_given(i, g);
        continue;
      }
      const auto reduced = reduced_.find(g.id);
      if (reduced == reduced_.end() || !before(reduced->second, i))
        refuse(i, fmt::format("comes before the gradient of group {} is final", g.id));
      if (!gradient_moves(g.id) || stays(g.id) || stepped(g.id).count() == 0) continue;
      const std::pair key{g.id, u8{0}};
      if (!rests(i, key) || evicted_.at(key) < reduced->second)
        refuse(i, fmt::format("comes before the gradient of group {} rests in its tier", g.id));
    }
  }

  // What another rank owns has gone there.
  void all_given(u32 i, const Group& g) const {
    for (u8 use = 0; g.held() && use < g.uses.size(); ++use) {
      if (!layout_.here(g.uses[use])) continue;
      const auto given = given_.find({g.id, use});
      if (given == given_.end() || !before(given->second, i))
        refuse(i, fmt::format("comes before the gradient of group {} is sent to its owner", g.id));
    }
  }

  void step(u32 i) {
    const u16 group = list_[i].group;
    const bool in_tier = list_[i].in.bytes == 0 && gradient_moves(group);
    stepped_[group] = i;
    if (list_[i].in.bytes > 0) expect(i, list_[i].in, What::gradient, group, 0);
    if (overlap_ != OptimizerOverlap::backward) {
      if (in_tier && !at_rest_.count(group)) refuse(i, "steps on a gradient that does not rest in its tier");
      return;
    }
    const auto reduced = reduced_.find(group);
    if (reduced == reduced_.end() || !before(reduced->second, i)) refuse(i, "steps on a gradient that is not finished before it");
    if (!in_tier) return;
    const std::pair key{group, u8{0}};
    if (!rests(i, key) || evicted_.at(key) < reduced->second) refuse(i, "steps on a gradient that does not rest in its tier before it");
  }

  // Overlap forward: whoever reads a group's weights waits for its deferred Steps; a Backward does so through its Forward.
  void stepped_before(u32 i, u16 group) const {
    if (overlap_ != OptimizerOverlap::forward || layout_.groups[group].frozen) return;
    if (weights_spread(placement_, scheduling_, layout_.groups[group])) {
      const auto spread = spread_.find(group);
      if (spread == spread_.end() || !before(spread->second, i))
        refuse(i, fmt::format("uses the weights of group {} before they are gathered", group));
      return;
    }
    if (stepped(group).count() == 0) return;
    const auto& wanted = placement_.parameters[group] == Tier::nvme ? landed_ : stepped_;
    const auto found = wanted.find(group);
    if (found == wanted.end() || !before(found->second, i))
      refuse(i, fmt::format("uses the weights of group {} before its deferred Step is done and landed", group));
  }

  void steps_finished() const {
    const auto end = static_cast<u32>(list_.size());
    if (overlap_ == OptimizerOverlap::none) return;
    for (const Bucket& b : layout_.buckets) {
      const auto is_its_step = [&](const Instruction& i) { return i.op == Op::Step && i.bucket == b.id; };
      const bool own = layout_.owns(layout_.groups[b.group]);
      const i64 wanted = own && intersection(stepped(b.group), tiles_of(b)).count() > 0;
      if (std::count_if(list_.begin(), list_.end(), is_its_step) != wanted)
        throw Error(ErrorCode::bug, fmt::format("[check] expected {} of bucket {} in the head", wanted ? "one Step" : "no Step", b.id));
    }
    const auto last = last_in_lane_[static_cast<size_t>(Lane::optimizer)];
    const Op wanted = overlap_ == OptimizerOverlap::backward ? Op::Land : Op::Commit;
    if (last < 0 || list_[static_cast<size_t>(last)].op != wanted)
      refuse(end - 1, fmt::format("the optimizer lane does not end with a {}", to_string(wanted)));
  }

  const OptimizerOverlap overlap_;
  const Layout& layout_;
  const Placement& placement_;
  const Scheduling& scheduling_;
  std::map<std::pair<u16, u8>, u32> evicted_;
  std::set<u16> at_rest_;                    // groups whose reduced gradient does
  std::set<std::pair<u16, u8>> unadded_;     // uses of tied weights that await their AddTied
  std::map<std::pair<u16, u8>, u32> given_;  // that have gone to their owner
  std::optional<u32> met_;                   // the last meeting of data-parallel ranks
  std::map<std::pair<u16, u16>, u32> activations_evicted_;
  std::set<std::pair<u16, u16>> spilled_;
  std::map<u16, u32> released_, reduced_, stepped_, landed_, spread_;
  std::map<std::pair<u16, u8>, u32> backward_, exchanged_;  // the last Backward that added to it; its sum over the ranks
};

// What deferred Steps at the head's beginning take for granted.
Gradients wanted_by_deferred(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  Gradients wanted;
  if (program.overlap != OptimizerOverlap::forward) return wanted;
  for (const Instruction& i : program.head) {
    if (i.op != Op::Step) continue;
    if (i.in.bytes > 0) {
      const std::pair slot{i.in, i.group};
      if (std::find(wanted.in_slots.begin(), wanted.in_slots.end(), slot) == wanted.in_slots.end()) wanted.in_slots.push_back(slot);
    } else if (gradients_move(placement, scheduling, layout.groups[i.group])) {
      wanted.at_rest.insert(i.group);
    }
  }
  return wanted;
}

void refuse_lost(const Gradients& wanted, const Gradients& left) {
  for (const auto& slot : wanted.in_slots) {
    if (std::find(left.in_slots.begin(), left.in_slots.end(), slot) == left.in_slots.end())
      throw Error(ErrorCode::bug,
                  fmt::format("[check] the next head expects the gradient of group {} in slot [{}, +{}), where none is left", slot.second,
                              slot.first.offset, slot.first.bytes));
  }
  for (u16 group : wanted.at_rest) {
    if (!left.at_rest.count(group))
      throw Error(ErrorCode::bug, fmt::format("[check] the next head expects the gradient of group {} at rest in its tier", group));
  }
}

}  // namespace

void check(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  const auto run = [&](const List& list, const Gradients& found) {
    return Checker(list, program, layout, placement, scheduling, found).run();
  };
  const Gradients deferred = wanted_by_deferred(program, layout, placement, scheduling);
  const Gradients left = run(program.head, deferred);
  for (const List* tail : {&program.commit, &program.redo, &program.skip}) refuse_lost(deferred, run(*tail, left));
  run(program.deferred, left);
}

}  // namespace spillway::parallel
