#include "parallel/proof/check_gradients.h"

namespace spillway::parallel {

GradientRules::GradientRules(CheckedList& checked, const Gradients& found) : c_(checked), at_rest_(found.at_rest) {
  for (const auto& [slot, group] : found.in_slots) c_.walk.found(slot, content({group, u8{0}}, ListWalk::kBefore));
}

Gradients GradientRules::left() const {
  Gradients left{{}, at_rest_};
  for (const auto& [slot, held] : c_.walk.holds()) {
    if (held.what == What::gradient && held.of.second == 0) left.in_slots.emplace_back(slot, held.of.first);
  }
  return left;
}

void GradientRules::expect(u32 i, const Slot& slot, Key key) {
  if (c_.residency[key.first].gradients.moves || slot.bytes > 0) c_.walk.expect(i, slot, content(key, 0));
}

void GradientRules::fetch(u32 i) {
  const Key key{c_[i].group, c_[i].use};
  if (!c_.done(evicted_, key, i)) c_.walk.refuse(i, "fetches a gradient that no earlier instruction has evicted");
  fetched_[key] = i;
}

void GradientRules::evict(u32 i) {
  const Key key{c_[i].group, c_[i].use};
  if (c_.scheduling.sums_each()) summed_before(i, key);
  if (c_[i].tiles.count() > 0) expect(i, c_[i].in, key);
  leaves(i);
}

void GradientRules::leaves(u32 i) {
  c_.walk.touch(i, c_[i].in, ListWalk::Access::give_up);
  evicted_[{c_[i].group, c_[i].use}] = i;
  if (c_[i].use == 0 && reduced_.count(c_[i].group)) at_rest_.insert(c_[i].group);
}

void GradientRules::written(u32 i) {
  const Instruction& now = c_[i];
  if (!makes_weight_gradients(now.op)) return;
  const auto& groups = c_.layout.blocks.at(now.block);
  if (now.gradients.size() != groups.size()) c_.walk.refuse(i, "does not name one gradient slot for each group of its block");
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!c_.layout.groups[groups[g].group].frozen) written(i, {groups[g].group, groups[g].use}, now.gradients[g]);
  }
}

void GradientRules::written(u32 i, Key key, const Slot& slot) {
  const Instruction& now = c_[i];
  const auto [last, first] = micro_batch_.try_emplace(key, now.micro_batch);
  const bool each = c_.scheduling.sums_each();
  if ((first || each) != now.first || (!first && last->second >= now.micro_batch))
    c_.walk.refuse(
        i, "its micro-batch is out of order: the first one must store the gradient, and later ones must add to it in ascending order");
  if (each && !first && (!evicted_.count(key) || evicted_.at(key) < written_.at(key)))
    c_.walk.refuse(i, "stores a gradient over the sum of the previous micro-batch, which has not been evicted");
  last->second = now.micro_batch;
  if (key.second > 0) unadded_.insert(key);
  reduced_.erase(key.first);
  written_[key] = i;
  exchanged_.erase(key);
  accumulated_.erase(key);
  at_rest_.erase(key.first);
  if (slot.bytes == 0) return;
  if (!now.first) expect(i, slot, key);
  c_.walk.fill(i, slot, content(key, i));
}

// After the Exchange, the accumulator holds this rank's shard of the sum; its other tiles are undefined.
void GradientRules::exchange(u32 i) {
  const Instruction& now = c_[i];
  const Key key{now.group, now.use};
  if (!c_.done(written_, key, i)) c_.walk.refuse(i, "sums a gradient over the ranks before the last backward that adds to it");
  if (exchanged_.count(key)) c_.walk.refuse(i, "sums a gradient over the ranks that an earlier instruction has already summed");
  expect(i, now.in, key);
  exchanged_[key] = i;
  if (now.in.bytes == 0) return;
  const TileRange own = c_.residency[now.group].stepped;
  const i64 tile_bytes = now.in.bytes / whole(c_.layout.groups[now.group]).count();
  c_.walk.touch(i, now.in, ListWalk::Access::write);
  if (own.count() > 0) c_.walk.fill(i, {now.in.offset + own.begin * tile_bytes, own.count() * tile_bytes, now.in.slab}, content(key, i));
}

// Checks that the gradient is already summed over the ranks and, if each micro-batch is summed, added to the sum of the earlier
// micro-batches.
void GradientRules::summed_before(u32 i, Key key) const {
  if (c_.scheduling.sharding.ranks > 1 && !c_.done(exchanged_, key, i))
    c_.walk.refuse(i, fmt::format("comes too early: the gradient of use {} is not summed over the ranks yet", key.second));
  const auto last = micro_batch_.find(key);  // not found if the block is on another pipeline rank
  const bool joins =
      c_.scheduling.sums_each() && last != micro_batch_.end() && last->second > 0 && c_.residency[key.first].stepped.count() > 0;
  if (joins && !c_.done(accumulated_, key, i))
    c_.walk.refuse(i, fmt::format("comes too early: the gradient of use {} is not added to the earlier micro-batches yet", key.second));
}

void GradientRules::accumulate(u32 i) {
  const Instruction& now = c_[i];
  const Key key{now.group, now.use};
  if (!c_.done(exchanged_, key, i)) c_.walk.refuse(i, "adds a gradient that has not been summed over the ranks");
  if (accumulated_.count(key)) c_.walk.refuse(i, "adds a gradient that an earlier instruction has already added");
  if (!c_.done(fetched_, key, i) || fetched_.at(key) < evicted_.at(key))
    c_.walk.refuse(i, "adds to the sum of the earlier micro-batches, which has not been fetched");
  if (now.in.overlaps(now.out)) c_.walk.refuse(i, "adds a gradient to itself: its two slots overlap");
  expect(i, now.in, key);
  expect(i, now.out, key);
  c_.walk.rewrite(i, now.out);
  c_.walk.touch(i, now.in, ListWalk::Access::give_up);
  accumulated_[key] = i;
}

void GradientRules::add_tied(u32 i) {
  const Instruction& now = c_[i];
  const Key from{now.group, now.use}, to{now.group, u8{0}};
  unadded_.erase(from);
  summed_before(i, from);
  summed_before(i, to);
  if (c_.residency[now.group].stepped.count() == 0) return;
  expect(i, now.in, from);
  expect(i, now.out, to);
  c_.walk.rewrite(i, now.out);
}

void GradientRules::reduce(u32 i) {
  const Instruction& now = c_[i];
  const Key key{now.group, u8{0}};
  summed_before(i, key);
  if (c_.residency[now.group].stepped.count() > 0) expect(i, now.in, key);
  for (const auto& [group, use] : unadded_) {
    if (group == now.group) c_.walk.refuse(i, fmt::format("reduces a gradient to which use {} of the tied weight has not been added", use));
  }
  reduced_[now.group] = i;
  if (const Residence& r = c_.residency[now.group].gradients; r.moves && !r.beside) leaves(i);
}

void GradientRules::tied(u32 i) {
  const Instruction& now = c_[i];
  const Key key{now.group, now.use};
  if (now.op == Op::ReceiveTied) {
    unadded_.insert(key);
    exchanged_[key] = i;
    if (now.out.bytes > 0) c_.walk.fill(i, now.out, content(key, i));
    return;
  }
  summed_before(i, key);
  if (!c_.done(written_, key, i)) c_.walk.refuse(i, "sends a gradient before the last backward that adds to it");
  if (now.tiles.count() > 0) expect(i, now.in, key);
  c_.walk.touch(i, now.in, ListWalk::Access::give_up);
  unadded_.erase(key);
  given_[key] = i;
}

bool GradientRules::rests_reduced(u32 i, u16 group) const {
  const Key key{group, u8{0}};
  return c_.done(evicted_, key, i) && evicted_.at(key) >= reduced_.at(group);
}

// Checks that every gradient is final and lies where its optimizer update will read it.
void GradientRules::agree_norm(u32 i) const {
  for (const Group& g : c_.layout.groups) {
    if (g.frozen) continue;
    if (!c_.layout.owns(g)) {
      all_given(i, g);
      continue;
    }
    if (!c_.done(reduced_, g.id, i)) c_.walk.refuse(i, fmt::format("comes too early: the gradient of group {} is not final yet", g.id));
    const bool stays = c_.walk.holds(content({g.id, u8{0}}, 0));
    if (!c_.residency[g.id].gradients.moves || stays || c_.residency[g.id].stepped.count() == 0) continue;
    if (!rests_reduced(i, g.id))
      c_.walk.refuse(i, fmt::format("comes too early: the gradient of group {} is not stored in its tier yet", g.id));
  }
}

// Checks that this rank has sent its gradients of the group to the rank that owns the group.
void GradientRules::all_given(u32 i, const Group& group) const {
  for (u8 use = 0; group.held() && use < group.uses.size(); ++use) {
    if (c_.layout.here(group.uses[use]) && !c_.done(given_, Key{group.id, use}, i))
      c_.walk.refuse(i, fmt::format("comes too early: the gradient of group {} is not sent to its owner yet", group.id));
  }
}

void GradientRules::step(u32 i) {
  const Instruction& now = c_[i];
  const bool in_tier = now.in.bytes == 0 && c_.residency[now.group].gradients.moves;
  if (now.in.bytes > 0) expect(i, now.in, {now.group, u8{0}});
  if (now.deferred || !c_.speculates) {
    if (in_tier && !at_rest_.count(now.group)) c_.walk.refuse(i, "steps with a gradient that is not stored in its tier");
    return;
  }
  if (!c_.done(reduced_, now.group, i)) c_.walk.refuse(i, "steps with a gradient that is not final yet");
  if (in_tier && !rests_reduced(i, now.group)) c_.walk.refuse(i, "steps with a gradient that is not stored in its tier yet");
}

}  // namespace spillway::parallel
