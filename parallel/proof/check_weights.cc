#include "parallel/proof/check_weights.h"

#include "base/error.h"

namespace spillway::parallel {

void WeightRules::expect(u32 i, const Slot& slot, u16 group) {
  if (c_.residency[group].weights.moves || slot.bytes > 0) c_.walk.expect(i, slot, {What::weights, {group, u16{0}}, 0});
}

void WeightRules::fetch(u32 i) {
  stepped_before(i, c_[i].group);
  absent(i, c_[i].group);
}

void WeightRules::gather(u32 i) { c_[i].out.bytes > 0 ? into_slot(i) : spread(i); }

void WeightRules::into_slot(u32 i) {
  const Instruction& now = c_[i];
  if (!c_.residency[now.group].weights.split) c_.walk.refuse(i, "gathers weights that are not sharded");
  stepped_before(i, now.group);
  if (c_.residency[now.group].weights.tier != Tier::device && now.tiles.count() > 0) {
    expect(i, now.in, now.group);
  } else {
    absent(i, now.group);
  }
  if (now.out.bytes != c_.layout.groups[now.group].elems * size_of(c_.scheduling.format.weight))
    c_.walk.refuse(i, "its slot does not have the size of the group's weights");
  c_.walk.fill(i, now.out, {What::weights, {now.group, 0}, i});
}

// Checks an all-gather of weights of which each rank has updated its own part.
void WeightRules::spread(u32 i) {
  const u16 group = c_[i].group;
  if (!c_.residency[group].weights_spread) c_.walk.refuse(i, "gathers weights that every rank stores and steps as a whole");
  if (c_.residency[group].stepped.count() > 0 && !c_.done(of(i).stepped, group, i))
    c_.walk.refuse(i, "gathers weights before their optimizer step");
  of(i).spread[group] = i;
}

void WeightRules::all_spread(u32 i) const {
  all_spread(i, deferred_);
  all_spread(i, own_);
}

void WeightRules::all_spread(u32 i, const Done& done) const {
  for (const auto& [group, step] : done.stepped) {
    if (c_.residency[group].weights_spread && !c_.done(done.spread, group, i))
      c_.walk.refuse(i,
                     fmt::format("comes too early: the weights of group {}, stepped by instruction {}, are not gathered yet", group, step));
  }
}

void WeightRules::release(u32 i) {
  const Instruction& now = c_[i];
  expect(i, now.in, now.group);
  released_[now.group] = i;
  c_.walk.touch(i, now.in, ListWalk::Access::give_up);
}

// Checks that weights that are about to be copied to the device are not there already, and that their earlier device memory was released.
void WeightRules::absent(u32 i, u16 group) const {
  if (c_.walk.holds({What::weights, {group, u16{0}}, 0})) c_.walk.refuse(i, "fetches weights that are already in their slot");
  if (const auto released = released_.find(group); released != released_.end() && !c_.walk.before(released->second, i))
    c_.walk.refuse(i, fmt::format("does not wait for instruction {}, which releases these weights", released->second));
}

void WeightRules::read(u32 i) {
  const Instruction& now = c_[i];
  const auto& groups = c_.layout.blocks.at(now.block);
  if (now.weights.size() != groups.size()) c_.walk.refuse(i, "does not name one weight slot for each group of its block");
  const auto& backward = now.op == Op::BackwardWeight ? c_.layout.weight_gradients_read_weights : c_.layout.backward_reads_weights;
  const bool reads = now.op == Op::Forward || now.recompute || backward[now.block];
  for (size_t g = 0; g < groups.size(); ++g) {
    stepped_before(i, groups[g].group);
    if (reads || now.weights[g].bytes > 0) expect(i, now.weights[g], groups[g].group);
  }
}

// Checks an optimizer update (Step). An update of this training step overwrites the generation (copy of weights and state) from which the
// previous update is computed. So this update must wait until the previous update is committed.
void WeightRules::step(u32 i) {
  if (!c_[i].deferred && c_.waiting != Waiting::nothing && !(committed_ && c_.walk.before(*committed_, i)))
    c_.walk.refuse(i, "steps before the update of the previous step is committed");
  of(i).stepped[c_[i].group] = i;
}

void WeightRules::commit(u32 i) {
  all_spread(i);
  if (c_[i].deferred) committed_ = i;
}

void WeightRules::land(u32 i) {
  for (Done* done : {&deferred_, &own_}) {
    for (const auto& [group, last] : done->stepped) {
      if (c_[i].group == kNone || c_[i].group == group) done->landed[group] = i;
    }
  }
}

// Checks a message with new weights of a group that several pipeline ranks hold. A rank that receives them treats them as updated and
// completely written; the rank that sends them must have updated them before.
void WeightRules::tied(u32 i) {
  const u16 group = c_[i].group;
  if (c_[i].op == Op::ReceiveTied) {
    of(i).stepped[group] = of(i).landed[group] = i;
  } else if (c_.residency[group].stepped.count() > 0 && !c_.done(of(i).stepped, group, i)) {
    c_.walk.refuse(i, "sends weights before their optimizer step");
  }
}

// Checks that an instruction that reads a group's weights waits for the group's deferred optimizer updates. A backward waits for them
// through its Forward.
void WeightRules::stepped_before(u32 i, u16 group) const {
  if (!c_.waits(group)) return;
  if (c_.residency[group].weights_spread) {
    if (!c_.done(deferred_.spread, group, i))
      c_.walk.refuse(i, fmt::format("uses the weights of group {} before they are gathered", group));
    return;
  }
  if (c_.residency[group].stepped.count() == 0) return;
  if (!c_.done(c_.residency[group].weights.tier == Tier::nvme ? deferred_.landed : deferred_.stepped, group, i))
    c_.walk.refuse(i, fmt::format("uses the weights of group {} before the group's deferred Steps are done and, on nvme, landed", group));
}

void WeightRules::list_ended() const {
  if (c_.tail) return;
  const List& list = c_.walk.list();
  std::map<std::pair<decltype(Bucket::id), bool>, i64> steps;
  for (const Instruction& i : list) {
    if (i.op == Op::Step) ++steps[{i.bucket, i.deferred}];
  }
  for (const Bucket& b : c_.layout.buckets) {
    const bool own = c_.layout.owns(c_.layout.groups[b.group]) && intersection(c_.residency[b.group].stepped, tiles_of(b)).count() > 0;
    for (const bool deferred : {false, true}) {
      const bool wanted = own && (deferred ? c_.waits(b.group) : c_.speculates_on(b.group));
      if (steps[{b.id, deferred}] != (wanted ? 1 : 0))
        throw Error(ErrorCode::bug, fmt::format("[check] expected {} for bucket {} {}", wanted ? "one Step" : "no Step", b.id,
                                                deferred ? "in the previous step's update" : "inside the backward"));
    }
  }
  if (c_.waiting == Waiting::nothing && !c_.speculates) return;
  const i64 last = c_.walk.last_in(Lane::optimizer);
  const Op wanted = c_.speculates ? Op::Land : Op::Commit;
  if (last < 0 || list[static_cast<size_t>(last)].op != wanted)
    c_.walk.refuse(static_cast<u32>(list.size()) - 1, fmt::format("the optimizer lane does not end with a {}", to_string(wanted)));
}

}  // namespace spillway::parallel
