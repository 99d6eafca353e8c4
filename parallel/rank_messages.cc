// What a rank sends to other pipeline ranks and receives from them.
#include "base/error.h"
#include "parallel/rank.h"
#include "parallel/stopwatch.h"

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

void Rank::send_message(std::span<const std::byte> bytes, const Instruction& i) {
  ask_pipeline_ranks([&] { return pipeline_ranks_->send(bytes, i.peer, tag(i)); }).wait();
  sent_bytes_ += std::ssize(bytes);
}

void Rank::receive_message(std::span<std::byte> bytes, const Instruction& i) {
  ask_pipeline_ranks([&] { return pipeline_ranks_->receive(bytes, i.peer, tag(i)); }).wait();
}

double Rank::send(const Instruction& i) {
  return microseconds_of([&] {
    if (i.what == What::weights) return send_weights(i);
    if (i.what != What::gradient) return send_message(bytes(i.in), i);
    const i64 bytes = i.tiles.count() * format().gradient_tile_bytes();
    if (bytes > 0) send_message({gradient_tiles(i.in, {i.group, i.use}, i.tiles), static_cast<size_t>(bytes)}, i);
  });
}

double Rank::receive(const Instruction& i) {
  return microseconds_of([&] {
    if (i.what == What::weights) return receive_weights(i);
    if (i.what != What::gradient) return receive_message(bytes(i.out), i);
    const i64 bytes = i.tiles.count() * format().gradient_tile_bytes();
    if (bytes > 0) receive_message({gradient_tiles(i.out, {i.group, i.use}, i.tiles), static_cast<size_t>(bytes)}, i);
  });
}

// What this rank has stepped. Weights on nvme pass a buffer of the ring, which Steps before this one on its lane have done with.
void Rank::send_weights(const Instruction& i) {
  if (steps_ == Steps::idle) return;
  stepper_.drain();
  offload::Blob& blob = state_.weights(i.group);
  for_pieces(i.tiles, plan_.chunk_tiles, [&](TileRange piece) {
    if (blob.tier() != Tier::nvme) return send_message(blob.view(piece, step_from_ + 1), i);
    const offload::StagingRing::Lease lease = state_.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    blob.read(piece, step_from_ + 1, bytes).wait();
    state_.verify(blob, piece, step_from_ + 1, bytes);
    send_message(bytes, i);
  });
  count_host(i);
}

void Rank::receive_weights(const Instruction& i) {
  if (steps_ == Steps::idle) return;
  stepper_.drain();
  offload::Blob& blob = state_.weights(i.group);
  for_pieces(i.tiles, plan_.chunk_tiles, [&](TileRange piece) {
    if (blob.tier() != Tier::nvme) return receive_message(blob.view(piece, step_from_ + 1), i);
    const offload::StagingRing::Lease lease = state_.staging()->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(piece.count() * blob.tile_bytes()));
    receive_message(bytes, i);
    blob.stamp(piece, step_from_ + 1, bytes);
    blob.write(piece, step_from_ + 1, bytes).wait();
  });
  count_host(i);
}

}  // namespace spillway::parallel
