// What a rank brings from a tier to its device and back.
#include "device/transfer.h"
#include "parallel/run/rank.h"

namespace spillway::parallel {

TileRange Rank::activation_tile(const Instruction& i) const {
  const i64 tile = i.micro_batch % plan_.live[i.block];
  return {tile, tile + 1};
}

// Beside the GPU's computing, by its own engines.
void Rank::copy_by_gpu(offload::Blob& blob, const Instruction& i, const std::byte* from, std::byte* to) {
  const i64 bytes = i.tiles.count() * blob.tile_bytes();
  lanes_->queue(i.lane).copy(to, from, bytes);
  offload::Traffic& traffic = state_.traffic();
  if (blob.tier() == Tier::host) (i.op == Op::Fetch ? traffic.read_bytes : traffic.written_bytes)[static_cast<size_t>(Tier::host)] += bytes;
}

double Rank::fetch(const Instruction& i) {
  if (i.what == What::activations) return state_.read(state_.activations(i.block), activation_tile(i), bytes(i.out));
  offload::Blob& blob = i.what == What::weights ? state_.weights(i.group) : state_.gradients(i.group, i.use);
  double moving_us = 0;
  if (stays_on_gpu(i)) {
    copy_by_gpu(blob, i, blob.view(i.tiles, state_.generation()).data(), at(i.out));
  } else {
    moving_us = lanes_ ? fetch_to_gpu(blob, i.tiles, bytes(i.out)) : state_.read(blob, i.tiles, bytes(i.out));
  }
  if (i.what == What::weights && !plan_.residency[i.group].weights.split) fill_group(i.group, at(i.out));
  return moving_us;
}

double Rank::evict(const Instruction& i) {
  if (i.what == What::activations) return state_.write(state_.activations(i.block), activation_tile(i), bytes(i.in));
  offload::Blob& blob = state_.gradients(i.group, i.use);
  const auto from = bytes(i.in).first(static_cast<size_t>(i.tiles.count() * blob.tile_bytes()));
  if (!stays_on_gpu(i)) return lanes_ ? evict_from_gpu(blob, i.tiles, from) : state_.write(blob, i.tiles, from);
  copy_by_gpu(blob, i, from.data(), blob.view(i.tiles, state_.generation()).data());
  return 0;
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
