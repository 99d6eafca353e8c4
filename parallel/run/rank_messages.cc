// What a rank sends to other pipeline ranks and receives from them.
#include "base/error.h"
#include "parallel/run/rank.h"
#include "parallel/state/stopwatch.h"

namespace spillway::parallel {
namespace {

// One for each kind of message: those of a kind go between two ranks in one order.
int tag(const Instruction& i) { return static_cast<int>(i.what); }

// Pieces in which weights go, the same on both sides whatever the tier.
template <class Body>
void for_pieces(TileRange tiles, i64 most, Body&& body) {
  for (i64 t = tiles.begin; t < tiles.end; t += most) body(TileRange{t, std::min(tiles.end, t + most)});
}

}  // namespace

double Rank::send(const Instruction& i) {
  return microseconds_of([&] {
    if (i.what == What::weights) return send_weights(i);
    const auto message = message_bytes(i, i.in);
    if (message.empty()) return;
    sent_bytes_ += std::ssize(message);
    exchange_->send(device_.lanes->queue(i.lane), message, i.peer, tag(i));
  });
}

double Rank::receive(const Instruction& i) {
  return microseconds_of([&] {
    if (i.what == What::weights) return receive_weights(i);
    const auto message = message_bytes(i, i.out);
    if (message.empty()) return;
    exchange_->receive(device_.lanes->queue(i.lane), message, i.peer, tag(i));
  });
}

// Of a gradient this rank's tiles, which may be none.
std::span<std::byte> Rank::message_bytes(const Instruction& i, const Slot& slot) {
  if (i.what != What::gradient) return bytes(slot);
  if (i.tiles.count() == 0) return {};
  return {gradient_tiles(slot, {i.group, i.use}, i.tiles), static_cast<size_t>(i.tiles.count() * format().gradient_tile_bytes())};
}

// What this rank has stepped. Weights that the CPU does not see pass a buffer of the ring, which Steps before this one on its lane have
// done with.
void Rank::send_weights(const Instruction& i) {
  if (steps_ == Steps::idle) return;
  stepper_.drain();
  offload::Blob& blob = state_.weights(i.group);
  const auto send = [&](std::span<const std::byte> bytes) {
    sent_bytes_ += std::ssize(bytes);
    pipeline_ranks_.send(bytes, i.peer, tag(i)).wait();
  };
  for_pieces(i.tiles, plan_.chunk_tiles, [&](TileRange piece) {
    if (!blob.is_staged()) return send(blob.view(piece, step_from_ + 1));
    const offload::StagingRing::Lease lease = state_.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    blob.read(piece, step_from_ + 1, bytes).wait();
    state_.verify(blob, piece, step_from_ + 1, bytes);
    send(bytes);
  });
  count_host(i);
}

void Rank::receive_weights(const Instruction& i) {
  if (steps_ == Steps::idle) return;
  stepper_.drain();
  offload::Blob& blob = state_.weights(i.group);
  const auto receive = [&](std::span<std::byte> bytes) { pipeline_ranks_.receive(bytes, i.peer, tag(i)).wait(); };
  for_pieces(i.tiles, plan_.chunk_tiles, [&](TileRange piece) {
    if (!blob.is_staged()) return receive(blob.view(piece, step_from_ + 1));
    const offload::StagingRing::Lease lease = state_.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    receive(bytes);
    blob.stamp(piece, step_from_ + 1, bytes);
    blob.write(piece, step_from_ + 1, bytes).wait();
  });
  count_host(i);
}

}  // namespace spillway::parallel
