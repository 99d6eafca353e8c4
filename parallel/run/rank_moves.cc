// What a rank brings from a tier to its device and back.
#include "parallel/run/rank.h"

namespace spillway::parallel {

TileRange Rank::activation_tile(const Instruction& i) const {
  const i64 tile = i.micro_batch % plan_.live[i.block];
  return {tile, tile + 1};
}

double Rank::fetch(const Instruction& i) {
  if (i.what == What::activations) return state_.read(state_.activations(i.block), activation_tile(i), bytes(i.out));
  offload::Blob& blob = i.what == What::weights ? state_.weights(i.group) : state_.gradients(i.group, i.use);
  const double moving_us = device_.copies->fetch(i, blob, bytes(i.out));
  if (i.what == What::weights && !weights_split(plan_.placement, plan_.scheduling, i.group)) fill_group(i.group, at(i.out));
  return moving_us;
}

double Rank::evict(const Instruction& i) {
  if (i.what == What::activations) return state_.write(state_.activations(i.block), activation_tile(i), bytes(i.in));
  offload::Blob& blob = state_.gradients(i.group, i.use);
  return device_.copies->evict(i, bytes(i.in).first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes())), blob);
}

}  // namespace spillway::parallel
