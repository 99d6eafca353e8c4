// How what lies on a rank's device meets other ranks: from host memory, where it lies on a CPU (cpu_exchange.h); off a GPU through host
// memory (host_exchange.h), or from GPU to GPU (nccl_exchange.h). The same bits whichever it is. Each call is made by all ranks that it
// concerns, on the same lane of each. A GPU's puts its work on that lane's queue, where from GPU to GPU it waits for the other ranks; a
// CPU's is done when it returns. One thread at a time makes the calls of a lane. Errors: Error(peer) where a rank does not come, as
// Communicator has it; Error(io) of the GPU. What a queue waits for ends after an error, too, with any bytes: nothing that came of a list
// is to be used before settle().
#pragma once
#include <algorithm>

#include "device/gpu_queue.h"
#include "parallel/comm/communicator.h"
#include "parallel/layout/sharding.h"

namespace spillway::parallel {

/// A whole as it is dealt to the ranks, in tiles: rank r has [tiles[r], tiles[r + 1]). The first rank's part is the longest.
struct Dealt {
  Parts tiles;
  i64 tile_bytes = 0;

  int ranks() const { return static_cast<int>(tiles.size()) - 1; }
  TileRange of(int rank) const { return {tiles[static_cast<size_t>(rank)], tiles[static_cast<size_t>(rank) + 1]}; }
  /// Where each rank's part begins, and the end; `each` bytes or elements a tile.
  Parts parts(i64 each) const {
    Parts begins;
    for (const i64 tile : tiles) begins.push_back(each * tile);
    return begins;
  }
};

/// The pieces in which such a whole crosses a bounded buffer: of each rank's part the next few tiles, side by side.
class DealtPieces {
 public:
  /// The buffer has a tile for each rank, or more.
  DealtPieces(const Dealt& dealt, i64 buffer_bytes) : dealt_(dealt), step_(buffer_bytes / dealt.tile_bytes / dealt.ranks()) {}

  i64 count() const { return ceil_div(dealt_.of(0).count(), step_); }
  /// Tiles of a part in a piece, at most.
  i64 step() const { return step_; }
  TileRange of_rank(int rank, i64 piece) const {
    const TileRange part = dealt_.of(rank);
    const i64 begin = std::min(part.end, part.begin + piece * step_);
    return {begin, std::min(part.end, begin + step_)};
  }
  /// Where each rank's tiles begin in the buffer, and the end; `each` bytes or elements a tile.
  Parts parts(i64 piece, i64 each) const {
    Parts begins{0};
    for (int r = 0; r < dealt_.ranks(); ++r) begins.push_back(begins.back() + each * of_rank(r, piece).count());
    return begins;
  }

 private:
  const Dealt& dealt_;
  const i64 step_;
};

/// `queue`, of all calls: the lane's; null on a CPU.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  /// The data-parallel ranks' parts to all of them. `mine` is this rank's part, which may be its own place in `all`; both may lie in host
  /// memory.
  virtual void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) = 0;
  /// This rank's part of the sum over the data-parallel ranks (ordered_sum.h), in its place; the rest stays or not. Lies on the device; f32
  /// or f64.
  virtual void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) = 0;
  /// Likewise, all of it: whole tiles.
  virtual void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) = 0;

  /// Between pipeline ranks; lies on the device. Those of one pair of ranks are received in the order in which they are sent.
  virtual void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) = 0;

  /// When the queues are empty: rethrows the error of what was on them.
  virtual void settle() {}
};

}  // namespace spillway::parallel
