// How data on a rank's device is exchanged with other ranks. For a CPU the data is in host memory (cpu_exchange.h); for a GPU it passes
// through host memory (host_exchange.h) or goes from GPU to GPU (nccl_exchange.h). All of them give the same bits. Each call is a
// collective of the ranks that it concerns, made on the same lane of each. On a GPU, work is put on that lane's queue, where a GPU-to-GPU
// exchange waits for the other ranks; on a CPU, a call is done when it returns. One thread at a time makes the calls of a lane. Errors are
// Error(peer) for a rank that does not take part, as in Communicator, and Error(io) for the GPU. After an error, queued waits still end,
// with arbitrary bytes: no result of a list may be used before settle().
#pragma once
#include <algorithm>

#include "device/gpu_queue.h"
#include "parallel/comm/communicator.h"
#include "parallel/layout/sharding.h"

namespace spillway::parallel {

/// How a whole is sharded over the ranks, in tiles: rank r has [tiles[r], tiles[r + 1]). The first rank's part is the longest.
struct Dealt {
  Parts tiles;
  i64 tile_bytes = 0;

  int ranks() const { return static_cast<int>(tiles.size()) - 1; }
  TileRange of(int rank) const { return {tiles[static_cast<size_t>(rank)], tiles[static_cast<size_t>(rank) + 1]}; }
  /// Returns where each rank's part begins, and the end, if a tile has `each` bytes or elements.
  Parts parts(i64 each) const {
    Parts begins;
    for (const i64 tile : tiles) begins.push_back(each * tile);
    return begins;
  }
};

/// The pieces in which a sharded whole passes through a bounded buffer: each piece has the next few tiles of every rank's part, side by
/// side.
class DealtPieces {
 public:
  /// The buffer must hold at least one tile per rank.
  DealtPieces(const Dealt& dealt, i64 buffer_bytes) : dealt_(dealt), step_(buffer_bytes / dealt.tile_bytes / dealt.ranks()) {}

  i64 count() const { return ceil_div(dealt_.of(0).count(), step_); }
  /// Returns the most tiles of one part that a piece has.
  i64 step() const { return step_; }
  TileRange of_rank(int rank, i64 piece) const {
    const TileRange part = dealt_.of(rank);
    const i64 begin = std::min(part.end, part.begin + piece * step_);
    return {begin, std::min(part.end, begin + step_)};
  }
  /// Returns where each rank's tiles begin in the buffer, and the end, if a tile has `each` bytes or elements.
  Parts parts(i64 piece, i64 each) const {
    Parts begins{0};
    for (int r = 0; r < dealt_.ranks(); ++r) begins.push_back(begins.back() + each * of_rank(r, piece).count());
    return begins;
  }

 private:
  const Dealt& dealt_;
  const i64 step_;
};

/// In all calls, `queue` is the lane's queue; null on a CPU.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  /// All-gathers the data-parallel ranks' parts. `mine` is this rank's part, possibly at its own place in `all`; both may be in host
  /// memory.
  virtual void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) = 0;
  /// Reduce-scatter in place: computes this rank's part of the sum over the data-parallel ranks (ordered_sum.h); the rest of `all` may
  /// change. Data is on the device; f32 or f64.
  virtual void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) = 0;
  /// All-reduce in place: like sum_part(), but of everything. The data must be whole tiles.
  virtual void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) = 0;

  /// Send and receive data on the device between pipeline ranks. Messages between two ranks must be received in the order in which they are
  /// sent.
  virtual void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) = 0;

  /// Called when the queues are empty: rethrows the error of an exchange that was on them.
  virtual void settle() {}
};

}  // namespace spillway::parallel
