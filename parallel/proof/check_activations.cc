#include "parallel/proof/check_activations.h"

namespace spillway::parallel {

void ActivationRules::evict(u32 i) {
  c_.walk.expect(i, c_[i].in, kept(i));
  c_.walk.touch(i, c_[i].in, ListWalk::Access::give_up);
  evicted_[key(i)] = i;
}

void ActivationRules::fetch(u32 i) {
  if (!c_.done(evicted_, key(i), i)) c_.walk.refuse(i, "fetches activations that no earlier instruction has evicted");
  c_.walk.fill(i, c_[i].out, kept(i));
}

void ActivationRules::send(u32 i) {
  c_.walk.expect(i, c_[i].in, {c_[i].what, key(i), 0});
  c_.walk.touch(i, c_[i].in, ListWalk::Access::give_up);
}

void ActivationRules::receive(u32 i) { c_.walk.fill(i, c_[i].out, {c_[i].what, key(i), i}); }

void ActivationRules::block(u32 i) {
  order(i);
  spill(i);
  if (c_[i].op != Op::BackwardWeight) messages(i);
}

void ActivationRules::take(std::map<Key, u32>& from, u32 i, const char* why) {
  if (!c_.done(from, key(i), i)) c_.walk.refuse(i, why);
  from.erase(key(i));
}

void ActivationRules::order(u32 i) {
  const Op op = c_[i].op;
  if (op == Op::Forward) {
    if (c_[i].block >= c_.layout.first_trained_block) forward_[key(i)] = i;
  } else if (op == Op::BackwardWeight) {
    take(input_, i, "has no BackwardInput of its block and micro-batch before it");
  } else {
    take(forward_, i, "has no Forward of its block and micro-batch before it, or another instruction has used that Forward");
    if (op == Op::BackwardInput && c_.layout.trains(c_[i].block)) input_[key(i)] = i;
  }
}

void ActivationRules::all_computed(u32 i) const {
  for (const auto* waiting : {&forward_, &input_}) {
    for (const auto& [of, by] : *waiting)
      c_.walk.refuse(i, fmt::format("comes too early: the backward for instruction {} (block {}, micro-batch {}) is not complete", by,
                                    of.first, of.second));
  }
}

void ActivationRules::spill(u32 i) {
  const Instruction& now = c_[i];
  if (now.op == Op::Forward && now.spill.bytes > 0) {
    c_.walk.fill(i, now.spill, kept(i));
    spilled_.insert(key(i));
  }
  if (makes_input_gradient(now.op) && (now.spill.bytes > 0 || spilled_.count(key(i)))) {
    c_.walk.expect(i, now.spill, kept(i));
    c_.walk.touch(i, now.spill, ListWalk::Access::give_up);
  }
}

// Checks that data from another pipeline rank is read from the slot (planned memory) in which it arrives, and that data for another
// pipeline rank is put into a slot.
void ActivationRules::messages(u32 i) {
  const Instruction& now = c_[i];
  const bool forward = now.op == Op::Forward;
  const What what = forward ? What::output : What::output_gradient;
  const auto before = static_cast<u16>(now.block - 1);
  const u16 read = forward ? before : now.block, made = forward ? now.block : before;
  if (crosses(read)) {
    c_.walk.expect(i, now.in, {what, {read, now.micro_batch}, 0});
    c_.walk.touch(i, now.in, ListWalk::Access::give_up);
  }
  const bool none = !forward && now.block <= c_.layout.first_trained_block;
  if (none || !crosses(made)) return;
  if (now.out.bytes == 0) c_.walk.refuse(i, "has no slot for its result, which another rank reads");
  c_.walk.fill(i, now.out, {what, {made, now.micro_batch}, i});
}

}  // namespace spillway::parallel
