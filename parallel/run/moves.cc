#include "parallel/run/moves.h"

namespace spillway::parallel {

// Returns the blob in which the data rests that the instruction moves.
offload::Blob& Moves::resting(const Instruction& i) const {
  ModelState& state = work_.state;
  if (i.what == What::activations) return state.activations(i.block);
  return i.what == What::weights ? state.weights(i.group) : state.gradients(i.group, i.use);
}

double Moves::fetch(const Instruction& i) {
  const auto into = work_.memory.bytes(i.out);
  const double moving_us = work_.device.copies->fetch(i, resting(i), into);
  if (i.what == What::weights && !work_.plan.residency[i.group].weights.split) work_.weights.show(i.group, into.data());
  return moving_us;
}

double Moves::evict(const Instruction& i) {
  offload::Blob& blob = resting(i);
  return work_.device.copies->evict(i, work_.memory.bytes(i.in).first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes())), blob);
}

}  // namespace spillway::parallel
