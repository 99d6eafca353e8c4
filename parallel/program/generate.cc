#include "parallel/program/generate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "parallel/program/messages.h"
#include "parallel/program/moves.h"

namespace spillway::parallel {
namespace {

using GroupSlots = std::map<u16, Slot>;

class Generator {
 public:
  /// Makes the generator of one Program (a rank's lists of instructions for a step). `waiting` names the deferred optimizer updates with
  /// which the list of instructions begins. `left` holds the places in memory (slots) where the previous list left the gradients of these
  /// updates.
  Generator(const Layout& layout, const Placement& placement, const Scheduling& scheduling, bool training,
            Waiting waiting = Waiting::nothing, GroupSlots left = {})
      : training_(training),
        waiting_(waiting),
        left_(std::move(left)),
        overlap_(training ? scheduling.overlap : OptimizerOverlap::none),
        order_(layout, scheduling, training),
        residency_(resolve(layout, placement, scheduling)),
        head_{layout, placement, scheduling, residency_},
        weights_(head_, order_, slab_),
        gradients_(head_, order_, slab_),
        activations_(head_, order_, scheduling.copy_engines ? slab_ : spill_slab_, training),
        messages_(head_, order_, slab_) {}

  Program run() {
    if (training_) head_.add({.op = Op::Load, .lane = Lane::data});
    if (waiting_ != Waiting::nothing) deferred_steps();
    for (i64 i = 0; i < order_.size(); ++i) {
      weights_.fetch_due(i);
      gradients_.fetch_due(i);
      activations_.fetch_due(i);
      messages_.receive_due(i);
      compute(i);
      weights_.release_due(i);
    }
    Program program;
    program.overlap = overlap_;
    if (training_) {
      agree_norm();
      tails(program);
    }
    program.head = std::move(head_.list);
    program.slab_bytes = {slab_.peak_bytes(), spill_slab_.peak_bytes()};
    return program;
  }

 private:
  const std::vector<Group>& groups() const { return head_.layout.groups; }

  void compute(i64 position) {
    const Compute& c = order_[position];
    if (makes_weight_gradients(c.op)) settle_sums_of(c.block);
    Instruction i{.op = c.op, .block = c.block, .micro_batch = c.micro_batch};
    i.first = c.micro_batch == 0 || head_.scheduling.sums_each();
    i.recompute = c.op != Op::BackwardWeight && activations_.policy(c.block).recompute;
    i.keep_logits = activations_.keeps_logits(c.block);
    if (position == 0 && training_) i.after.push_back(0);
    for (const GroupUse& g : head_.layout.blocks[c.block]) {
      i.weights.push_back(head_.reads_weights(c) ? weights_.slot(g.group, i.after) : Slot());
      if (makes_weight_gradients(c.op)) i.gradients.push_back(gradients_.slot(g, i.after));
    }
    i.spill = activations_.slot(c, i.after);
    i.in = messages_.input(c, i.after);
    i.out = messages_.output(c, i.after);
    const u32 id = head_.add(std::move(i));
    activations_.computed(c, id);
    messages_.computed(c, id);
    last_compute_ = id;
    if (makes_weight_gradients(c.op) && (!order_.goes_on(position) || head_.scheduling.sums_each())) gradients_finished(c, id);
  }

  // Called after a block's weight gradients. The ranks sum these gradients while the next block computes, so the instructions that need
  // the sum are added to the list after those of the next block.
  void gradients_finished(const Compute& c, u32 backward) {
    const bool last = c.micro_batch + 1 == head_.scheduling.micro_batches, each = head_.scheduling.sums_each();
    for (const GroupUse& g : head_.layout.blocks[c.block]) {
      if (head_.frozen(g.group)) continue;
      gradients_.computed(g, last, backward);
      const bool finished = last && all_uses_finished(g.group) && !shared(groups()[g.group]);
      if (finished || each) summed_.push_back({g, c.block, c.micro_batch, backward, finished});
    }
    if (last || each) settle_gradients(c.block);
  }

  // Counts the blocks whose gradients of the group are finished, and returns true at the last one. They are counted because the weight
  // parts of the blocks that share a tied weight may come in any order.
  bool all_uses_finished(u16 group) { return ++finished_uses_[group] == groups()[group].uses.size(); }

  // Adds the instructions that finish the gradients of all blocks except `under_way`, whose sums over the ranks have only just begun. A
  // single rank has no such sums, so the gradients of `under_way` are finished too.
  void settle_gradients(u16 under_way) {
    spread_stepped();
    while (!summed_.empty() && (head_.alone() || summed_.front().block != under_way)) settle_front();
  }

  // Adds the instructions that finish the sums of this block that are still in progress. Called before the block's next weight gradients,
  // which go into the same accumulators.
  void settle_sums_of(u16 block) {
    const auto waits = [&](const Summed& s) { return s.block == block; };
    while (std::ranges::any_of(summed_, waits)) settle_front();
  }

  void settle_front() {
    const Summed s = summed_.front();
    summed_.pop_front();
    const bool last = s.micro_batch + 1 == head_.scheduling.micro_batches;
    if (head_.scheduling.sums_each()) gradients_.summed(s.use, s.micro_batch == 0, last);
    if (s.finished) settle(s.use.group, s.backward);
  }

  void settle(u16 group, u32 backward) {
    const u32 rests = gradients_.finished(group, backward);
    if (!speculates(group)) return;
    const std::vector<u32> stepped = step(head_, group, gradients_.staying(group), {rests}, false);
    if (spreads(group)) unspread_.emplace_back(group, stepped);
  }

  // Returns true if the group is updated speculatively, inside the backward.
  bool speculates(u16 group) const { return overlap_ == OptimizerOverlap::backward && !residency_[group].deferred; }
  bool is_among(Waiting waiting, u16 group) const {
    return !head_.frozen(group) && (waiting == Waiting::all || (waiting == Waiting::deferred && residency_[group].deferred));
  }

  // Returns true if the group is trained and other pipeline ranks hold it too.
  bool shared(const Group& group) const { return group.held() && !group.frozen && !uses_elsewhere(head_.layout, group).empty(); }

  // Adds the instructions that finish the gradients of groups that other pipeline ranks hold too. They come after all other messages, and
  // in the same order on all ranks.
  void settle_shared() {
    for (const Group& g : groups()) {
      if (!shared(g)) continue;
      if (head_.layout.owns(g)) {
        settle(g.id, last_compute_);
      } else {
        gradients_.give(g.id);
      }
    }
  }

  // Adds the instructions that send the new weights of each shared group from its owner to the other ranks that hold the group, after all
  // optimizer updates. Returns the groups that this rank receives, each with the instructions that receive it.
  template <class Among>
  std::vector<std::pair<u16, std::vector<u32>>> share_weights(ListBuilder& list, bool deferred, const Among& among) const {
    std::vector<std::pair<u16, std::vector<u32>>> come;
    for (const Group& g : groups()) {
      if (!shared(g) || !among(g.id)) continue;
      const bool owned = list.layout.owns(g);
      Instruction i{.op = owned ? Op::SendTied : Op::ReceiveTied, .lane = Lane::optimizer, .what = What::weights, .group = g.id};
      i.deferred = deferred;
      i.tiles = residency_[g.id].stepped;
      for (u16 rank : sharers(list.layout, g)) {
        i.peer = rank;
        const u32 id = list.add(i);
        if (!owned) come.push_back({g.id, {id}});
      }
    }
    return come;
  }

  void spread_stepped() {
    for (const auto& [group, stepped] : unspread_) spread_by_.push_back(spread(head_, group, stepped, false));
    unspread_.clear();
  }

  bool spreads(u16 group) const { return residency_[group].weights_spread; }

  void agree_norm() {
    settle_gradients(kNone);
    settle_shared();
    if (overlap_ == OptimizerOverlap::backward) {
      for (auto& [group, by] : share_weights(head_, false, [&](u16 group) { return speculates(group); })) {
        if (spreads(group)) unspread_.emplace_back(group, std::move(by));
      }
    }
    spread_stepped();
    std::vector<u32> after = gradients_.evictions();
    after.insert(after.end(), spread_by_.begin(), spread_by_.end());
    // This Land instruction waits for all speculative writes. The choice between commit and skip may be made only after they are
    // complete.
    if (overlap_ == OptimizerOverlap::backward) head_.add({.op = Op::Land, .lane = Lane::optimizer});
    head_.add({.op = Op::AgreeNorm, .after = std::move(after)});
  }

  // Adds the all-gather of weights, if each rank has updated only its own part of them.
  u32 spread(ListBuilder& list, u16 group, std::vector<u32> stepped, bool deferred) const {
    Instruction gather{.op = Op::Gather, .lane = Lane::data, .what = What::weights, .group = group};
    gather.deferred = deferred;
    gather.tiles = residency_[group].stepped;
    gather.after = std::move(stepped);
    return list.add(std::move(gather));
  }

  Instruction step_of(u16 group, const Bucket& bucket, TileRange tiles, const Slot& gradient, std::vector<u32> after) const {
    Instruction step{.op = Op::Step, .lane = Lane::optimizer, .what = What::state, .group = group, .bucket = bucket.id};
    step.tiles = tiles;
    step.in = gradient;
    step.after = std::move(after);
    return step;
  }

  // Adds an optimizer update (Step) for each bucket of the group in which this rank has tiles to update. Returns the index of the last
  // Step, or nothing without a Step.
  std::vector<u32> step(ListBuilder& list, u16 group, const Slot& gradient, const std::vector<u32>& after, bool deferred) const {
    std::vector<u32> last;
    const TileRange own = residency_[group].stepped;
    for (u16 id : groups()[group].buckets) {
      const Bucket& bucket = list.layout.buckets[id];
      const TileRange tiles = intersection(tiles_of(bucket), own);
      if (tiles.count() == 0) continue;
      Instruction step = step_of(group, bucket, tiles, gradient, after);
      step.deferred = deferred;
      last = {list.add(std::move(step))};
    }
    return last;
  }

  // Adds the deferred optimizer updates of the previous step to this forward, block by block. Weights on nvme can be fetched when the
  // writes of their Steps are complete. The Land that waits for these writes is added one block later, so that the writes of a block run
  // at the same time as the reads for the next one.
  void deferred_steps() {
    std::vector<u16> written;
    std::vector<u32> spread_by;
    for (const std::vector<u16>& block : waiting_groups_by_first_use()) {
      for (u16 group : block) {
        std::vector<u32> stepped = deferred_step(group);
        if (spreads(group)) {
          stepped = {spread(head_, group, std::move(stepped), true)};
          spread_by.push_back(stepped.back());
        }
        weights_.ready_after(group, std::move(stepped));
      }
      land(written);
      written = block;
    }
    land(written);
    for (auto& [group, by] : share_weights(head_, true, [&](u16 group) { return is_among(waiting_, group); })) {
      if (spreads(group)) {
        by = {spread(head_, group, std::move(by), true)};
        spread_by.push_back(by.back());
      }
      weights_.ready_after(group, std::move(by));
    }
    head_.add(commit(true, std::move(spread_by)));
  }

  static Instruction commit(bool deferred, std::vector<u32> after) {
    return {.op = Op::Commit, .lane = Lane::optimizer, .deferred = deferred, .after = std::move(after)};
  }

  std::vector<u32> deferred_step(u16 group) {
    const auto left = left_.find(group);
    if (left == left_.end()) return step(head_, group, {}, {}, true);
    std::vector<u32> done = step(head_, group, left->second, {}, true);
    slab_.give_up(left->second, done.back());
    return done;
  }

  void land(const std::vector<u16>& written) {
    for (u16 group : written) {
      if (residency_[group].weights.tier != Tier::nvme) continue;
      weights_.ready_after(group, {head_.add({.op = Op::Land, .lane = Lane::optimizer, .group = group})});
    }
  }

  // Returns the groups whose optimizer updates are deferred, one list for each block that uses some of them first. Blocks without such
  // groups are left out.
  std::vector<std::vector<u16>> waiting_groups_by_first_use() const {
    std::vector<std::vector<u16>> all;
    for (const auto& block : head_.layout.blocks) {
      std::vector<u16> first;
      for (const GroupUse& g : block) {
        if (is_among(waiting_, g.group) && g.use == 0) first.push_back(g.group);
      }
      if (!first.empty()) all.push_back(std::move(first));
    }
    return all;
  }

  // Returns a separate list of instructions with the optimizer updates of `which` and the Commit that ends the update, which is the
  // previous step's update if
  // `deferred`.
  List step_all(Waiting which, bool deferred) const {
    ListBuilder tail{head_.layout, head_.placement, head_.scheduling, residency_};
    std::vector<u32> spread_by;
    for (const Group& g : groups()) {
      if (!is_among(which, g.id) || !tail.layout.owns(g)) continue;
      std::vector<u32> stepped = step(tail, g.id, gradients_.staying(g.id), {}, deferred);
      if (spreads(g.id)) spread_by.push_back(spread(tail, g.id, std::move(stepped), deferred));
    }
    for (auto& [group, by] : share_weights(tail, deferred, [&](u16 group) { return is_among(which, group); })) {
      if (spreads(group)) spread_by.push_back(spread(tail, group, std::move(by), deferred));
    }
    tail.add(commit(deferred, std::move(spread_by)));
    return std::move(tail.list);
  }

  static List published(List list) {
    const auto commit = static_cast<u32>(list.size()) - 1;
    list.push_back({.op = Op::Publish, .after = {commit}});
    return list;
  }

  void tails(Program& program) const {
    if (overlap_ == OptimizerOverlap::none) program.commit = published(step_all(Waiting::all, false));
    if (overlap_ == OptimizerOverlap::backward) program.clipped_settle = step_all(Waiting::all, true);
    if (head_.scheduling.defers()) {
      program.settle = step_all(Waiting::deferred, true);
    } else if (overlap_ == OptimizerOverlap::backward) {
      program.commit = published({commit(false, {})});
    }
  }

  // A gradient whose sum over the ranks has been in progress since the backward of its block. `finished` says that the group's gradient is
  // complete after this sum.
  struct Summed {
    GroupUse use;
    u16 block, micro_batch;
    u32 backward;
    bool finished;
  };

  const bool training_;
  const Waiting waiting_;
  const GroupSlots left_;
  const OptimizerOverlap overlap_;
  const ComputingOrder order_;
  const Residency residency_;
  ListBuilder head_;
  SlabPlan slab_{Slab::moving}, spill_slab_{Slab::spill};
  WeightMoves weights_;
  GradientMoves gradients_;
  ActivationMoves activations_;
  MessageMoves messages_;
  u32 last_compute_ = 0;
  std::map<u16, size_t> finished_uses_;  // for each group: number of blocks of this rank whose gradients of the group are finished
  std::deque<Summed> summed_;
  // Groups that were updated inside the backward and whose new weights are not gathered yet, each with its last optimizer update.
  std::vector<std::pair<u16, std::vector<u32>>> unspread_;
  std::vector<u32> spread_by_;
};

}  // namespace

// A head is the list of instructions with which a step begins. First generates the head without deferred updates of the previous step, to
// find where in memory a head leaves gradients for the next one. Then generates the heads that begin with deferred updates, which do not
// change where later data lies.
Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  Program program = Generator(layout, placement, scheduling, true).run();
  const auto head_after = [&](Waiting waiting) {
    GroupSlots left;
    for (const Instruction& i : program.settle_for(waiting)) {
      if (i.in.bytes > 0) left[i.group] = i.in;
    }
    return Generator(layout, placement, scheduling, true, waiting, std::move(left)).run().head;
  };
  if (scheduling.defers()) program.first_head = std::exchange(program.head, head_after(Waiting::deferred));
  if (scheduling.overlap == OptimizerOverlap::backward) program.clipped_head = head_after(Waiting::all);
  return program;
}

Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  return Generator(layout, placement, scheduling, false).run();
}

}  // namespace spillway::parallel
