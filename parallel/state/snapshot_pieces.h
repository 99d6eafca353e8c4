// The pieces of one generation of the state, and where their bytes lie: chunks of a bucket's tiles, as the Stepper works by them, and the
// like of frozen weights. Some have no state. Which pieces may be touched when is the Snapshot's to know. Thread-safe.
#pragma once
#include <limits>

#include "parallel/state/model_state.h"

namespace spillway::parallel {

class SnapshotPieces {
 public:
  struct Piece {
    u16 group = 0;
    TileRange range;
  };
  using Bytes = std::span<std::byte>;

  /// Of the state's generation now.
  SnapshotPieces(const Plan& plan, ModelState& state);

  u64 generation() const { return generation_; }
  size_t size() const { return pieces_.size(); }
  const Piece& operator[](size_t number) const { return pieces_[number]; }
  /// The piece that is this chunk of the bucket.
  size_t number(const Bucket& bucket, TileRange range) const;

  /// Of what every rank steps each saves its part.
  bool saved(size_t number) const;
  /// No Step passes it.
  bool frozen(u16 group) const { return plan_.layout.groups[group].frozen; }
  /// Some of it lies on nvme: a Step of this generation reads it into the staging ring.
  bool staged(u16 group) const;
  /// All of it lies where the CPU sees it; else it is copied to be seen.
  bool visible(u16 group) const;
  /// The generation whose Step is the first to write where the piece lies.
  u64 written_over_by(u16 group) const;
  size_t weight_bytes(size_t number) const { return bytes(number, state_.weights(pieces_[number].group)); }
  size_t state_bytes(size_t number) const;
  /// Where it lies in memory, of a visible one.
  std::span<const std::byte> weights(size_t number) const;
  std::span<const std::byte> state(size_t number) const;
  /// Copies it from wherever it lies, checked.
  void read(size_t number, Bytes weights, Bytes state);

 private:
  size_t bytes(size_t number, const offload::Blob& blob) const {
    return static_cast<size_t>(pieces_[number].range.count() * blob.tile_bytes());
  }

  const Plan& plan_;
  ModelState& state_;
  const u64 generation_;
  std::vector<Piece> pieces_;
  std::vector<size_t> first_;  // by bucket
};

}  // namespace spillway::parallel
