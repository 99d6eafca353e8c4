#include "parallel/proof/check.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "parallel/proof/check_activations.h"
#include "parallel/proof/check_gradients.h"
#include "parallel/proof/check_weights.h"

namespace spillway::parallel {
namespace {

// Checks a list from its first instruction to its last.
class Checker {
 public:
  Checker(const CheckedList& checked, const Gradients& found)
      : checked_(checked), weights_(checked_), gradients_(checked_, found), activations_(checked_) {}

  /// Checks the list. Returns the reduced gradients that it leaves to a later list.
  Gradients run() {
    for (u32 i = 0; i < checked_.walk.list().size(); ++i) {
      checked_.walk.order(i);
      meeting(i);
      contents(i);
    }
    weights_.list_ended();
    return gradients_.left();
  }

 private:
  // Checks that all collectives of data-parallel ranks have a fixed order.
  void meeting(u32 i) {
    const Op op = checked_[i].op;
    const bool meets = op == Op::Load || op == Op::Gather || op == Op::Exchange || op == Op::AgreeNorm;
    if (!meets || checked_.scheduling.sharding.ranks == 1) return;
    if (met_ && !checked_.walk.before(*met_, i))
      checked_.walk.refuse(i, fmt::format("may start its collective before instruction {} has started an earlier one", *met_));
    met_ = i;
  }

  void contents(u32 i) {
    const Instruction& now = checked_[i];
    switch (now.op) {
      case Op::Fetch:
        return now.what == What::activations ? activations_.fetch(i) : fetch(i);
      case Op::Forward:
      case Op::Backward:
      case Op::BackwardInput:
      case Op::BackwardWeight:
        activations_.block(i);
        weights_.read(i);
        return gradients_.written(i);
      case Op::Release:
        return weights_.release(i);
      case Op::Gather:
        return weights_.gather(i);
      case Op::Exchange:
        return gradients_.exchange(i);
      case Op::Accumulate:
        return gradients_.accumulate(i);
      case Op::AddTied:
        return gradients_.add_tied(i);
      case Op::Reduce:
        return gradients_.reduce(i);
      case Op::SendActivation:
      case Op::SendGradient:
        return activations_.send(i);
      case Op::ReceiveActivation:
      case Op::ReceiveGradient:
        return activations_.receive(i);
      case Op::SendTied:
      case Op::ReceiveTied:
        return now.what == What::weights ? weights_.tied(i) : gradients_.tied(i);
      case Op::AgreeNorm:
        if (checked_.speculates) weights_.all_spread(i);
        activations_.all_computed(i);
        return gradients_.agree_norm(i);
      case Op::Commit:
        return weights_.commit(i);
      case Op::Publish:
        return weights_.all_spread(i);
      case Op::Step:
        weights_.step(i);
        return gradients_.step(i);
      case Op::Land:
        return weights_.land(i);
      case Op::Evict:
        return now.what == What::activations ? activations_.evict(i) : gradients_.evict(i);
      case Op::Load:
        return;
    }
  }

  // Checks a Fetch of weights or of a gradient.
  void fetch(u32 i) {
    const Instruction& now = checked_[i];
    const bool weights = now.what == What::weights;
    weights ? weights_.fetch(i) : gradients_.fetch(i);
    const i64 element_bytes = size_of(weights ? checked_.scheduling.format.weight : checked_.scheduling.format.gradient);
    if (now.out.bytes != now.tiles.count() * kTileElems * element_bytes)
      checked_.walk.refuse(i, "its slot does not have the size of the data that it fetches");
    checked_.walk.fill(i, now.out, {now.what, {now.group, now.use}, i});
  }

  CheckedList checked_;
  WeightRules weights_;
  GradientRules gradients_;
  ActivationRules activations_;
  std::optional<u32> met_;  // the last collective of data-parallel ranks that was checked
};

// Returns the gradients that the deferred optimizer updates of this list need from the previous list. The list begins a step or completes
// an update.
Gradients wanted_by_deferred(const List& list, const Residency& residency) {
  Gradients wanted;
  for (const Instruction& i : list) {
    if (i.op != Op::Step || !i.deferred) continue;
    if (i.in.bytes > 0) {
      const std::pair slot{i.in, i.group};
      if (std::find(wanted.in_slots.begin(), wanted.in_slots.end(), slot) == wanted.in_slots.end()) wanted.in_slots.push_back(slot);
    } else if (residency[i.group].gradients.moves) {
      wanted.at_rest.insert(i.group);
    }
  }
  return wanted;
}

void refuse_lost(const Gradients& wanted, const Gradients& left) {
  for (const auto& slot : wanted.in_slots) {
    if (std::find(left.in_slots.begin(), left.in_slots.end(), slot) == left.in_slots.end())
      throw Error(
          ErrorCode::bug,
          fmt::format("[check] the next step expects the gradient of group {} in slot [{}, +{}), but this list does not leave it there",
                      slot.second, slot.first.offset, slot.first.bytes));
  }
  for (u16 group : wanted.at_rest) {
    if (!left.at_rest.count(group))
      throw Error(
          ErrorCode::bug,
          fmt::format("[check] the next step expects the gradient of group {} in its tier, but this list does not leave it there", group));
  }
}

}  // namespace

void check(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling) {
  Scheduling own = scheduling;
  own.overlap = program.overlap;
  const Residency residency = resolve(layout, placement, own);
  const bool speculates = program.overlap == OptimizerOverlap::backward;
  enum class Kind { head, tail, settle };
  const auto run = [&](const List& list, Kind kind, Waiting waiting, const Gradients& found) {
    const ListWalk walk(list, program.slab_bytes);
    return Checker({walk, waiting, kind == Kind::tail, kind == Kind::head && speculates, layout, own, residency}, found).run();
  };
  std::vector<Waiting> all{Waiting::nothing};
  if (own.defers()) all.push_back(Waiting::deferred);
  if (speculates) all.push_back(Waiting::all);
  for (const Waiting before : all) {
    const List& head = program.head_for(before);
    const Gradients left = run(head, Kind::head, before, wanted_by_deferred(head, residency));
    for (const List* tail : {&program.commit, &program.skip}) run(*tail, Kind::tail, Waiting::nothing, left);
    for (const Waiting after : all) {
      if (after == Waiting::nothing) continue;
      refuse_lost(wanted_by_deferred(program.head_for(after), residency), left);
      run(program.settle_for(after), Kind::settle, after, left);
    }
  }
}

}  // namespace spillway::parallel
