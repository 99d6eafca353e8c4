#include "parallel/stepper.h"

#include <algorithm>
#include <cstring>

#include "device/stream.h"

namespace spillway::parallel {
namespace {

constexpr size_t kReadAhead = 2;
constexpr i64 kTilesInPlace = 64;

template <class T>
std::span<T> elements(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

void Stepper::step(const Bucket& bucket, const Update& u, u64 from) {
  const Group& group = plan_.layout.groups[bucket.group];
  const i64 first = bucket.begin / kTileElems, end = first + bucket.tiles;
  const i64 chunk_tiles = state_.staging() ? plan_.chunk_tiles : kTilesInPlace;
  std::deque<Chunk> ahead;
  const auto finish_one = [&] {
    Chunk chunk = std::move(ahead.front());
    ahead.pop_front();
    chunk.reads.wait();
    plan_.scheduling.dtype == DType::f64 ? update<double>(group, chunk, u) : update<float>(group, chunk, u);
    close(bucket, std::move(chunk));
  };
  for (i64 t = first; t < end; t += chunk_tiles) {
    ahead.push_back(open(bucket, {t, std::min(end, t + chunk_tiles)}, from));
    if (ahead.size() > kReadAhead) finish_one();
  }
  while (!ahead.empty()) finish_one();
}

Stepper::Chunk Stepper::open(const Bucket& bucket, TileRange range, u64 from) {
  Chunk chunk;
  chunk.range = range;
  chunk.from = from;
  i64 used_bytes = 0;
  chunk.weights = operand(chunk, state_.weights(bucket.group), used_bytes, true);
  chunk.gradients = operand(chunk, state_.gradients(bucket.group, 0), used_bytes, false);
  chunk.state = operand(chunk, state_.optimizer(bucket.group), used_bytes, true);
  return chunk;
}

Stepper::Operand Stepper::operand(Chunk& chunk, offload::Blob& blob, i64& used_bytes, bool written) {
  const i64 bytes = chunk.range.count() * blob.tile_bytes();
  if (blob.tier() != Tier::nvme) {
    const auto tier = static_cast<size_t>(blob.tier());
    if (blob.tier() == Tier::host) {
      state_.traffic().read_bytes[tier] += bytes;
      if (written) state_.traffic().written_bytes[tier] += bytes;
    }
    return {blob.view(chunk.range, chunk.from), blob.view(chunk.range, chunk.from + 1), nullptr};
  }
  if (!chunk.lease) {
    // Reads ahead and the chunk at hand hold leases too: what is left may be written behind.
    while (writing_.size() + kReadAhead + 1 > static_cast<size_t>(state_.staging()->buffers())) {
      writing_.front().writes.wait();
      writing_.pop_front();
    }
    chunk.lease.emplace(state_.staging()->acquire());
  }
  const auto span = chunk.lease->bytes().subspan(static_cast<size_t>(used_bytes), static_cast<size_t>(bytes));
  used_bytes += bytes;
  chunk.reads.add(blob.read(chunk.range, chunk.from, span));
  return {span, span, written ? &blob : nullptr};
}

// Tile by tile, so that neither threads nor chunks change a bit; segments differ in their decay only.
template <class T>
void Stepper::update(const Group& group, const Chunk& chunk, const Update& u) {
  const auto scalars = [&](bool decay) {
    return optim::make_adamw_scalars<T>(u.adamw, u.learning_rate, decay ? u.adamw.weight_decay : 0.0, u.t, u.gradient_scale);
  };
  const optim::AdamWScalars<T> decayed = scalars(true), plain = scalars(false);
  const auto w = elements<T>(chunk.weights.next), g = elements<T>(chunk.gradients.old), s = elements<T>(chunk.state.next);
  const auto carry = [](const Operand& o, i64 tile, i64 tile_bytes) {
    if (o.old.data() == o.next.data()) return;
    std::memcpy(o.next.data() + tile * tile_bytes, o.old.data() + tile * tile_bytes, static_cast<size_t>(tile_bytes));
  };
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) {
    carry(chunk.weights, tile, kTileElems * static_cast<i64>(sizeof(T)));
    carry(chunk.state, tile, 2 * kTileElems * static_cast<i64>(sizeof(T)));
    const i64 at = tile * kTileElems, group_at = (chunk.range.begin + tile) * kTileElems;
    for_segments(group, group_at, group_at + kTileElems, [&](i64 begin, i64 end, const Segment* segment) {
      if (!segment) return;
      const auto from = static_cast<size_t>(begin - group_at), count = static_cast<size_t>(end - begin);
      const auto m = static_cast<size_t>(2 * at) + from, v = m + static_cast<size_t>(kTileElems);
      optim::adamw_update<T>(w.subspan(static_cast<size_t>(at) + from, count), s.subspan(m, count), s.subspan(v, count),
                             g.subspan(static_cast<size_t>(at) + from, count), segment->decay ? decayed : plain, u.isa);
    });
  });
}

void Stepper::close(const Bucket& bucket, Chunk chunk) {
  if (!chunk.lease) return;
  Pending writes;
  for (const Operand* o : {&chunk.weights, &chunk.state}) {
    if (o->staged) writes.add(o->staged->write(chunk.range, chunk.from + 1, o->next));
  }
  writing_.push_back({bucket.group, std::move(*chunk.lease), std::move(writes)});
}

void Stepper::land(u16 group) {
  for (Written& w : writing_) {
    if (w.group == group) w.writes.wait();
  }
}

void Stepper::drain() {
  for (Written& w : writing_) w.writes.wait();
  writing_.clear();
}

}  // namespace spillway::parallel
