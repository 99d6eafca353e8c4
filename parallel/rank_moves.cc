// What a rank brings from a tier to its device and back.
#include "device/transfer.h"
#include "parallel/rank.h"

namespace spillway::parallel {

TileRange Rank::activation_tile(const Instruction& i) const {
  const i64 tile = i.micro_batch % plan_.live[i.block];
  return {tile, tile + 1};
}

double Rank::fetch(const Instruction& i) {
  if (i.what == What::activations) return state_.read(state_.activations(i.block), activation_tile(i), bytes(i.out));
  offload::Blob& blob = i.what == What::weights ? state_.weights(i.group) : state_.gradients(i.group, i.use);
  const bool through_host = plan_.on_gpu() && blob.tier() == Tier::nvme;
  const double moving_us = through_host ? fetch_to_gpu(blob, i.tiles, bytes(i.out)) : state_.read(blob, i.tiles, bytes(i.out));
  if (i.what == What::weights && !weights_split(plan_.placement, plan_.scheduling, i.group)) fill_group(i.group, at(i.out));
  return moving_us;
}

double Rank::evict(const Instruction& i) {
  if (i.what == What::activations) return state_.write(state_.activations(i.block), activation_tile(i), bytes(i.in));
  offload::Blob& blob = state_.gradients(i.group, i.use);
  const auto from = bytes(i.in).first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes()));
  return plan_.on_gpu() && blob.tier() == Tier::nvme ? evict_from_gpu(blob, i.tiles, from) : state_.write(blob, i.tiles, from);
}

double Rank::fetch_to_gpu(offload::Blob& blob, TileRange tiles, std::span<std::byte> into) {
  const i64 step = plan_.bounce_bytes / blob.tile_bytes();
  double moving_us = 0;
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    const TileRange some{t, std::min(tiles.end, t + step)};
    const std::span bounce(fetched_.data(), static_cast<size_t>(some.count() * blob.tile_bytes()));
    moving_us += state_.read(blob, some, bounce);
    transfer(into.data() + (t - tiles.begin) * blob.tile_bytes(), bounce.data(), std::ssize(bounce));
  }
  return moving_us;
}

double Rank::evict_from_gpu(offload::Blob& blob, TileRange tiles, std::span<const std::byte> from) {
  const i64 step = plan_.bounce_bytes / blob.tile_bytes();
  double moving_us = 0;
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    const TileRange some{t, std::min(tiles.end, t + step)};
    const std::span bounce(evicted_.data(), static_cast<size_t>(some.count() * blob.tile_bytes()));
    transfer(bounce.data(), from.data() + (t - tiles.begin) * blob.tile_bytes(), std::ssize(bounce));
    moving_us += state_.write(blob, some, bounce);
  }
  return moving_us;
}

}  // namespace spillway::parallel
