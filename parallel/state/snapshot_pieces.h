// The pieces of one generation of the state, and where their bytes lie. A piece is a chunk of a bucket's tiles, the unit in which the
// Stepper works, or a chunk of frozen weights. Some pieces have no optimizer state. The Snapshot decides when a piece may be touched.
// Thread-safe.
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

  /// Lists the pieces of the state's current generation.
  SnapshotPieces(const Plan& plan, ModelState& state);

  u64 generation() const { return generation_; }
  size_t size() const { return pieces_.size(); }
  const Piece& operator[](size_t number) const { return pieces_[number]; }
  /// Returns the number of the piece that is this chunk of the bucket.
  size_t number(const Bucket& bucket, TileRange range) const;

  /// Returns true if this rank saves the piece. If several ranks step the same tiles, each saves its part of them.
  bool saved(size_t number) const;
  /// Returns true if no Step touches the group.
  bool frozen(u16 group) const { return plan_.layout.groups[group].frozen; }
  /// Returns true if some of the group lies on nvme, so that a Step of this generation reads it into the staging ring.
  bool staged(u16 group) const;
  /// Returns true if the CPU can address all of the group; otherwise pieces are copied before they are read.
  bool visible(u16 group) const;
  /// Returns the generation from which the first Step starts that overwrites the piece's bytes.
  u64 written_over_by(u16 group) const;
  size_t weight_bytes(size_t number) const { return bytes(number, state_.weights(pieces_[number].group)); }
  size_t state_bytes(size_t number) const;
  /// Return the piece's bytes in memory; the group must be visible().
  std::span<const std::byte> weights(size_t number) const;
  std::span<const std::byte> state(size_t number) const;
  /// Copies the piece from whatever tier it lies in, and verifies its checksums.
  void read(size_t number, Bytes weights, Bytes state);

 private:
  size_t bytes(size_t number, const offload::Blob& blob) const {
    return static_cast<size_t>(pieces_[number].range.count() * blob.tile_bytes());
  }

  const Plan& plan_;
  ModelState& state_;
  const u64 generation_;
  std::vector<Piece> pieces_;
  std::vector<size_t> first_;  // number of each bucket's first piece
};

}  // namespace spillway::parallel
