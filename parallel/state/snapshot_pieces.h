// Lists the pieces of one generation (complete copy) of weights and optimizer state, and where their bytes lie. A piece is a chunk of
// frozen weights, or a chunk of a bucket's tiles as the Stepper updates them. Some pieces have no optimizer state. The Snapshot decides
// when a piece may be read. Thread-safe.
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

  /// Makes the list of the pieces of the current weights and optimizer state.
  SnapshotPieces(const Plan& plan, ModelState& state);

  u64 generation() const { return generation_; }
  size_t size() const { return pieces_.size(); }
  const Piece& operator[](size_t number) const { return pieces_[number]; }
  /// Returns the index of the piece that consists of this chunk of the bucket.
  size_t number(const Bucket& bucket, TileRange range) const;

  /// Returns true if this rank saves the piece. If several ranks update the same tiles, each of them saves its own part of the tiles.
  bool saved(size_t number) const;
  /// Returns true if the optimizer does not update the group, because its weights are frozen.
  bool frozen(u16 group) const { return plan_.layout.groups[group].frozen; }
  /// Returns true if some data of the group lies on nvme. The optimizer update of this state then reads that data into the staging ring.
  bool staged(u16 group) const;
  /// Returns true if the CPU can address all of the group's data. Pieces of other groups are copied before they are read.
  bool visible(u16 group) const;
  /// Finds the first optimizer update that overwrites bytes of the group's pieces. Returns the generation (copy of the state) from which
  /// that update starts.
  u64 written_over_by(u16 group) const;
  size_t weight_bytes(size_t number) const { return bytes(number, state_.weights(pieces_[number].group)); }
  size_t state_bytes(size_t number) const;
  /// weights() and state() return the piece's bytes where they lie in memory. The group must be visible().
  std::span<const std::byte> weights(size_t number) const;
  std::span<const std::byte> state(size_t number) const;
  /// Copies the piece's bytes, in whatever tier they lie, and verifies their checksums.
  void read(size_t number, Bytes weights, Bytes state);

 private:
  size_t bytes(size_t number, const offload::Blob& blob) const {
    return static_cast<size_t>(pieces_[number].range.count() * blob.tile_bytes());
  }

  const Plan& plan_;
  ModelState& state_;
  const u64 generation_;
  std::vector<Piece> pieces_;
  std::vector<size_t> first_;  // for each bucket: index of its first piece
};

}  // namespace spillway::parallel
