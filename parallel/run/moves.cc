#include "parallel/run/moves.h"

namespace spillway::parallel {

TileRange Moves::activation_tile(const Instruction& i) const {
  const i64 tile = i.micro_batch % work_.plan.live[i.block];
  return {tile, tile + 1};
}

double Moves::fetch(const Instruction& i) {
  ModelState& state = work_.state;
  const auto into = work_.memory.bytes(i.out);
  if (i.what == What::activations) return state.read(state.activations(i.block), activation_tile(i), into);
  offload::Blob& blob = i.what == What::weights ? state.weights(i.group) : state.gradients(i.group, i.use);
  const double moving_us = work_.device.copies->fetch(i, blob, into);
  if (i.what == What::weights && !work_.plan.residency[i.group].weights.split) work_.weights.show(i.group, into.data());
  return moving_us;
}

double Moves::evict(const Instruction& i) {
  ModelState& state = work_.state;
  const auto from = work_.memory.bytes(i.in);
  if (i.what == What::activations) return state.write(state.activations(i.block), activation_tile(i), from);
  offload::Blob& blob = state.gradients(i.group, i.use);
  return work_.device.copies->evict(i, from.first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes())), blob);
}

}  // namespace spillway::parallel
