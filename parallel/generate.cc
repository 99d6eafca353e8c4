#include "parallel/generate.h"

#include <algorithm>
#include <map>

#include "parallel/moves.h"

namespace spillway::parallel {
namespace {

using GroupSlots = std::map<u16, Slot>;

class Generator {
 public:
  /// Overlap forward: `left` is where the head before left gradients for their Steps in this one.
  Generator(const Layout& layout, const Placement& placement, const Scheduling& scheduling, bool training, GroupSlots left = {})
      : training_(training),
        left_(std::move(left)),
        overlap_(training ? scheduling.overlap : OptimizerOverlap::none),
        order_(layout, scheduling, training),
        head_{layout, placement, scheduling},
        weights_(head_, order_, slab_),
        gradients_(head_, order_, slab_),
        activations_(head_, order_, spill_slab_, training) {}

  Program run() {
    if (training_) head_.add({.op = Op::Load, .lane = Lane::data});
    if (overlap_ == OptimizerOverlap::forward) deferred_steps();
    for (i64 i = 0; i < order_.size(); ++i) {
      weights_.fetch_due(i);
      gradients_.fetch_due(i);
      activations_.fetch_due(i);
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
    Instruction i{
        .op = c.backward ? Op::Backward : Op::Forward, .block = c.block, .micro_batch = c.micro_batch, .first = c.micro_batch == 0};
    i.recompute = activations_.policy(c.block).recompute;
    if (position == 0 && training_) i.after.push_back(0);
    for (const GroupUse& g : head_.layout.blocks[c.block]) {
      i.weights.push_back(head_.reads_weights(c) ? weights_.slot(g.group, i.after) : Slot());
      if (c.backward) i.gradients.push_back(gradients_.slot(g, i.after));
    }
    i.spill = activations_.slot(c, i.after);
    const u32 id = head_.add(std::move(i));
    activations_.computed(c, id);
    if (c.backward && !order_.goes_on(position)) gradients_finished(c, id);
  }

  void gradients_finished(const Compute& c, u32 backward) {
    const bool last = c.micro_batch + 1 == head_.scheduling.micro_batches;
    for (const GroupUse& g : head_.layout.blocks[c.block]) {
      const u32 rests = gradients_.finished(g, last, backward);
      if (last && g.use == 0 && overlap_ == OptimizerOverlap::backward) step(g.group, gradients_.staying(g.group), {rests});
    }
  }

  void agree_norm() {
    // No speculative write outlives the choice of the tail.
    if (overlap_ == OptimizerOverlap::backward) head_.add({.op = Op::Land, .lane = Lane::optimizer});
    head_.add({.op = Op::AgreeNorm, .after = gradients_.evictions()});
  }

  Instruction step_of(u16 group, u16 bucket, const Slot& gradient, std::vector<u32> after) const {
    Instruction step{.op = Op::Step, .lane = Lane::optimizer, .what = What::state, .group = group, .bucket = bucket};
    step.in = gradient;
    step.after = std::move(after);
    return step;
  }

  // A Step for each bucket of the group; returns the last one's number.
  u32 step(u16 group, const Slot& gradient, const std::vector<u32>& after) {
    u32 last = 0;
    for (u16 bucket : groups()[group].buckets) last = head_.add(step_of(group, bucket, gradient, after));
    return last;
  }

  // The step before is finished in this forward, block by block. Weights on nvme are there to be fetched once they have landed, which is
  // waited for one block late, so that a block's writes run beside the next one's reads.
  void deferred_steps() {
    std::vector<u16> written;
    for (const std::vector<u16>& block : trained_groups_by_first_use()) {
      for (u16 group : block) weights_.ready_after(group, deferred_step(group));
      land(written);
      written = block;
    }
    land(written);
    head_.add({.op = Op::Commit, .lane = Lane::optimizer});
  }

  u32 deferred_step(u16 group) {
    const auto left = left_.find(group);
    if (left == left_.end()) return step(group, {}, {});
    const u32 done = step(group, left->second, {});
    slab_.give_up(left->second, done);
    return done;
  }

  void land(const std::vector<u16>& written) {
    for (u16 group : written) {
      if (head_.placement.parameters[group] != Tier::nvme) continue;
      weights_.ready_after(group, head_.add({.op = Op::Land, .lane = Lane::optimizer, .group = group}));
    }
  }

  // By block, where there are any.
  std::vector<std::vector<u16>> trained_groups_by_first_use() const {
    std::vector<std::vector<u16>> all;
    for (const auto& block : head_.layout.blocks) {
      std::vector<u16> first;
      for (const GroupUse& g : block) {
        if (!groups()[g.group].frozen && g.use == 0) first.push_back(g.group);
      }
      if (!first.empty()) all.push_back(std::move(first));
    }
    return all;
  }

  List step_all() const {
    ListBuilder tail{head_.layout, head_.placement, head_.scheduling};
    for (const Group& g : groups()) {
      for (u16 bucket : g.buckets) tail.add(step_of(g.id, bucket, gradients_.staying(g.id), {}));
    }
    tail.add({.op = Op::Commit, .lane = Lane::optimizer});
    return std::move(tail.list);
  }

  static List published(List list) {
    const auto commit = static_cast<u32>(list.size()) - 1;
    list.push_back({.op = Op::Publish, .after = {commit}});
    return list;
  }

  void tails(Program& program) const {
    switch (overlap_) {
      case OptimizerOverlap::none:
        program.commit = published(step_all());
        return;
      case OptimizerOverlap::backward:
        program.commit = published({{.op = Op::Commit, .lane = Lane::optimizer}});
        program.redo = published(step_all());
        return;
      case OptimizerOverlap::forward:
        program.deferred = step_all();
        return;
    }
  }

  const bool training_;
  const GroupSlots left_;
  const OptimizerOverlap overlap_;
  const ComputingOrder order_;
  ListBuilder head_;
  SlabPlan slab_{Slab::moving}, spill_slab_{Slab::spill};
  WeightMoves weights_;
  GradientMoves gradients_;
  ActivationMoves activations_;
};

}  // namespace

// A head that defers Steps leaves gradients in slots to the next one. Which slots is known once they have been planned; that a Step reads
// one at the beginning moves none of them.
Program generate_training(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  Program program = Generator(layout, placement, scheduling, true).run();
  GroupSlots left;
  for (const Instruction& i : program.deferred) {
    if (i.in.bytes > 0) left[i.group] = i.in;
  }
  return left.empty() ? program : Generator(layout, placement, scheduling, true, std::move(left)).run();
}

Program generate_forward(const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  return Generator(layout, placement, scheduling, false).run();
}

}  // namespace spillway::parallel
