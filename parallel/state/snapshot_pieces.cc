#include "parallel/state/snapshot_pieces.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/pending.h"

namespace spillway::parallel {

SnapshotPieces::SnapshotPieces(const Plan& plan, ModelState& state) : plan_(plan), state_(state), generation_(state.generation()) {
  for (const Bucket& b : plan.layout.buckets) {
    first_.push_back(pieces_.size());
    const TileRange own = plan.stepped(b);
    for (i64 t = own.begin, end = own.end; t < end; t += plan.chunk_tiles)
      pieces_.push_back({b.group, {t, std::min(end, t + plan.chunk_tiles)}});
  }
  for (const Group& g : plan.layout.groups) {
    const TileRange own = g.frozen ? plan.stepped(g) : TileRange();
    for (i64 t = own.begin, end = own.end; t < end; t += plan.chunk_tiles)
      pieces_.push_back({g.id, {t, std::min(end, t + plan.chunk_tiles)}});
  }
}

size_t SnapshotPieces::number(const Bucket& bucket, TileRange range) const {
  return first_[bucket.id] + static_cast<size_t>((range.begin - plan_.stepped(bucket).begin) / plan_.chunk_tiles);
}

bool SnapshotPieces::saved(size_t number) const {
  const TileRange own = plan_.scheduling.sharding.own(plan_.layout.groups[pieces_[number].group]);
  return intersection(own, pieces_[number].range).count() > 0;
}

// Returns whether data of the group lies on nvme. A group that another pipeline rank saves has no pieces on this rank, so the result is
// false.
bool SnapshotPieces::staged(u16 group) const {
  if (!plan_.layout.owns(plan_.layout.groups[group])) return false;
  const offload::Blob* state = state_.optimizer(group);
  return state_.weights(group).tier() == Tier::nvme || (state && state->tier() == Tier::nvme);
}

bool SnapshotPieces::visible(u16 group) const {
  const offload::Blob* state = state_.optimizer(group);
  return !state_.weights(group).is_staged() && !(state && state->is_staged());
}

u64 SnapshotPieces::written_over_by(u16 group) const {
  const offload::Blob* state = state_.optimizer(group);
  const bool in_place = state_.weights(group).slots() == 1 || (state && state->slots() == 1);
  return in_place ? generation_ : generation_ + 1;
}

std::span<const std::byte> SnapshotPieces::weights(size_t number) const {
  return state_.weights(pieces_[number].group).view(pieces_[number].range, generation_);
}

size_t SnapshotPieces::state_bytes(size_t number) const {
  const offload::Blob* state = state_.optimizer(pieces_[number].group);
  return state ? bytes(number, *state) : 0;
}

std::span<const std::byte> SnapshotPieces::state(size_t number) const {
  offload::Blob* state = state_.optimizer(pieces_[number].group);
  return state ? state->view(pieces_[number].range, generation_) : Bytes();
}

void SnapshotPieces::read(size_t number, Bytes weights, Bytes state) {
  const Piece& piece = pieces_[number];
  std::vector<std::pair<offload::Blob*, Bytes>> parts{{&state_.weights(piece.group), weights}};
  if (offload::Blob* blob = state_.optimizer(piece.group)) parts.emplace_back(blob, state);
  Pending moving;
  for (const auto& [blob, into] : parts) {
    if (blob->is_staged()) {
      moving.add(blob->read(piece.range, generation_, into, {.for_save = true}));
    } else {
      std::memcpy(into.data(), blob->view(piece.range, generation_).data(), into.size());
    }
  }
  moving.wait();
  for (const auto& [blob, into] : parts) {
    if (blob->is_staged()) state_.verify(*blob, piece.range, generation_, into);
  }
}

}  // namespace spillway::parallel
