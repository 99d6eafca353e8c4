// The optimizer's updates that a GPU makes: of data that lies in its memory, and of tiles that stream through its memory.
#include "device/stream.h"
#include "optim/average_tile.h"
#include "optim/rules/gpu.h"
#include "parallel/state/stepper.h"

namespace spillway::parallel {

void Stepper::step_on_gpu(const Bucket& bucket, TileRange tiles, const AllScalars& scalars, const Update& u, u64 from,
                          std::span<std::byte> gradient) {
  for (i64 t = tiles.begin; snapshot_ && t < tiles.end; t += plan_.chunk_tiles)
    // The Copy that before() may return is not needed: an update on the GPU reads nothing into host memory.
    snapshot_->before(bucket, {t, std::min(tiles.end, t + plan_.chunk_tiles)}, from);
  const Group& group = plan_.layout.groups[bucket.group];
  offload::Blob& weights = state_.weights(group.id);
  offload::Blob* state = state_.optimizer(group.id);
  const auto state_at = [&](u64 generation) { return state ? state->view(tiles, generation).data() : nullptr; };
  const i64 gradient_tile_bytes = kTileElems * size_of(plan_.resting_gradient({group.id, 0}));
  const std::byte* g = gradient.empty() ? state_.gradients(group.id, 0).view(tiles, from).data()
                                        : gradient.data() + (tiles.begin - plan_.stepped(group).begin) * gradient_tile_bytes;
  const i64 begin = tiles.begin * kTileElems;
  const optim::StateFormat format = format_of(group);
  std::byte* const next_weights = weights.view(tiles, from + 1).data();
  optim::update_tiles_on_gpu(format, {g, weights.view(tiles, from).data(), state_at(from), next_weights, state_at(from + 1)}, tiles.count(),
                             parts_of(group, begin, tiles.end * kTileElems, scalars, u), noise_of(group.id, u, begin));
  if (format.average)
    optim::average_tiles_on_gpu(format, {next_weights, state_at(from + 1), state_at(from), state_at(from + 1)}, tiles.count(),
                                u.average_decay);
}

// The CPU verifies tiles that come from nvme, and copies them for a snapshot, before the GPU reads them. Chunks without bytes in the
// staging ring are only queued.
void Stepper::stream(const Bucket& bucket, Chunk chunk, const AllScalars& scalars, const Update& u) {
  std::optional<Snapshot::Copy> copy = snapshot_ ? snapshot_->before(bucket, chunk.range, chunk.from) : std::nullopt;
  if (copy || chunk.lease)
    Stream::current().run(chunk.range.count(), [&](i64 tile, int) { look_at(chunk, tile, copy ? &*copy : nullptr); });
  if (copy) snapshot_->hand_over(std::move(*copy));
  queue_update(bucket, chunk, scalars, u);
  if (!chunk.lease) return;
  on_gpu_.emplace_back(&bucket, std::move(chunk));
  if (on_gpu_.size() > read_ahead() / 2) take_back();
}

void Stepper::queue_update(const Bucket& bucket, Chunk& chunk, const AllScalars& scalars, const Update& u) {
  UpdateStream& gpu = *state_.update_stream();
  gpu.begin();
  struct Place {
    std::byte *old = nullptr, *next = nullptr;
  };
  const auto place = [&](const Operand& o) -> Place {
    if (o.old.empty() || o.there) return {o.old.data(), o.next.data()};
    std::byte* const at = o.read ? gpu.bring(o.old) : gpu.room(std::ssize(o.next));
    return {at, at};
  };
  const Place gradient = place(chunk.gradients), weights = place(chunk.weights), state = place(chunk.state);
  const Group& group = plan_.layout.groups[bucket.group];
  const optim::StateFormat format = format_of(group);
  const i64 begin = chunk.range.begin * kTileElems, tiles = chunk.range.count();
  gpu.run([&] {
    optim::update_tiles_on_gpu(format, {gradient.old, weights.old, state.old, weights.next, state.next}, tiles,
                               parts_of(group, begin, chunk.range.end * kTileElems, scalars, u), noise_of(group.id, u, begin));
    if (format.average) optim::average_tiles_on_gpu(format, {weights.next, state.next, state.old, state.next}, tiles, u.average_decay);
  });
  if (!chunk.weights.there) gpu.take(chunk.weights.next, weights.next);
  if (!chunk.state.there && state.next) gpu.take(chunk.state.next, state.next);
  const Event left = gpu.end();
  if (chunk.lease) chunk.reads.add(left);
}

void Stepper::take_back() {
  const Bucket& bucket = *on_gpu_.front().first;
  Chunk chunk = std::move(on_gpu_.front().second);
  on_gpu_.pop_front();
  chunk.reads.wait();
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) { stamp(chunk, tile); });
  close(bucket, std::move(chunk));
}

}  // namespace spillway::parallel
