#include "parallel/run/pipeline_messages.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

// Returns the tag of a message. Each kind of data has its own tag. Between two ranks, messages with the same tag keep their order.
int tag(const Instruction& i) { return static_cast<int>(i.what); }

// Cuts weights into the pieces in which they are sent. Sender and receiver cut in the same way, in whatever tiers they store the weights.
template <class Body>
void for_pieces(TileRange tiles, i64 most, Body&& body) {
  for (i64 t = tiles.begin; t < tiles.end; t += most) body(TileRange{t, std::min(tiles.end, t + most)});
}

}  // namespace

void PipelineMessages::send(const Instruction& i) {
  if (i.what == What::weights) return send_weights(i);
  const auto bytes = message(i, i.in);
  if (bytes.empty()) return;
  bytes_ += std::ssize(bytes);
  work_.ranks.exchange().send(work_.queue(i.lane), bytes, i.peer, tag(i));
}

void PipelineMessages::receive(const Instruction& i) {
  if (i.what == What::weights) return receive_weights(i);
  const auto bytes = message(i, i.out);
  if (bytes.empty()) return;
  work_.ranks.exchange().receive(work_.queue(i.lane), bytes, i.peer, tag(i));
}

// Returns the bytes of a message. For a gradient, these are the tiles that this rank holds, which may be none.
std::span<std::byte> PipelineMessages::message(const Instruction& i, const Slot& slot) const {
  if (i.what != What::gradient) return work_.memory.bytes(slot);
  if (i.tiles.count() == 0) return {};
  return {work_.memory.gradient(slot, {i.group, i.use}, i.tiles),
          static_cast<size_t>(i.tiles.count() * work_.format().gradient_tile_bytes())};
}

// Sends the tiles that this rank has updated. If the CPU cannot address the weights, they pass through a buffer of the staging ring.
// drain() makes sure that earlier optimizer updates on this thread have returned their buffers.
void PipelineMessages::send_weights(const Instruction& i) {
  work_.stepper.drain();
  offload::Blob& blob = work_.state.weights(i.group);
  const u64 generation = step_.of(i).from + 1;
  const auto send = [&](std::span<const std::byte> bytes) {
    bytes_ += std::ssize(bytes);
    work_.ranks.pipeline().send(bytes, i.peer, tag(i)).wait();
  };
  for_pieces(i.tiles, work_.plan.chunk_tiles, [&](TileRange piece) {
    if (!blob.is_staged()) return send(blob.view(piece, generation));
    const offload::StagingRing::Lease lease = work_.state.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    blob.read(piece, generation, bytes).wait();
    work_.state.verify(blob, piece, generation, bytes);
    send(bytes);
  });
  work_.count_host(i);
}

void PipelineMessages::receive_weights(const Instruction& i) {
  work_.stepper.drain();
  offload::Blob& blob = work_.state.weights(i.group);
  const u64 generation = step_.of(i).from + 1;
  const auto receive = [&](std::span<std::byte> bytes) { work_.ranks.pipeline().receive(bytes, i.peer, tag(i)).wait(); };
  for_pieces(i.tiles, work_.plan.chunk_tiles, [&](TileRange piece) {
    if (!blob.is_staged()) return receive(blob.view(piece, generation));
    const offload::StagingRing::Lease lease = work_.state.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    receive(bytes);
    blob.stamp(piece, generation, bytes);
    blob.write(piece, generation, bytes).wait();
  });
  work_.count_host(i);
}

}  // namespace spillway::parallel
