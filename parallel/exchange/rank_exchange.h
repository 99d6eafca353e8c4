// Exchanges data on a rank's device with other ranks. With a CPU the data is in host memory (cpu_exchange.h). With a GPU the data either
// passes through host memory (host_exchange.h) or goes from GPU to GPU (nccl_exchange.h). The results of all three are bitwise equal.
//
// Each call is a collective of the ranks that it concerns; each of them makes it on the same lane (one lane runs one kind of instruction
// in order). On a GPU the work is put on that lane's queue, and an exchange from GPU to GPU waits there for the other ranks. On a CPU a
// call is done when it returns. One thread at a time makes the calls of a lane. Errors are Error(peer) for a rank that does not take
// part, as in Communicator, and Error(io) for the GPU. After an error, exchanges on the queue still end, but with arbitrary bytes. So no
// result may be used before settle() has returned.
#pragma once
#include <algorithm>

#include "device/gpu_queue.h"
#include "parallel/comm/communicator.h"
#include "parallel/layout/sharding.h"

namespace spillway::parallel {

/// States how the whole data is sharded over the ranks, in tiles: rank r has tiles
/// [tiles[r], tiles[r + 1]). The first rank's part is the longest one.
struct Dealt {
  Parts tiles;
  i64 tile_bytes = 0;

  int ranks() const { return static_cast<int>(tiles.size()) - 1; }
  TileRange of(int rank) const { return {tiles[static_cast<size_t>(rank)], tiles[static_cast<size_t>(rank) + 1]}; }
  /// Returns the offset of each rank's part in the whole data, followed by the end of the last part. A tile takes `each` bytes or
  /// elements.
  Parts parts(i64 each) const {
    Parts begins;
    for (const i64 tile : tiles) begins.push_back(each * tile);
    return begins;
  }
};

/// Cuts sharded data into the pieces in which it passes through a buffer that is too small for the whole.
/// Each piece has the next few tiles of every rank's part, one rank's tiles after the other's.
class DealtPieces {
 public:
  /// Cuts `dealt` into pieces for a buffer of `buffer_bytes`, which must have room for at least one tile of each rank.
  DealtPieces(const Dealt& dealt, i64 buffer_bytes) : dealt_(dealt), step_(buffer_bytes / dealt.tile_bytes / dealt.ranks()) {}

  i64 count() const { return ceil_div(dealt_.of(0).count(), step_); }
  /// Returns the largest number of tiles that a piece holds of one rank's part.
  i64 step() const { return step_; }
  TileRange of_rank(int rank, i64 piece) const {
    const TileRange part = dealt_.of(rank);
    const i64 begin = std::min(part.end, part.begin + piece * step_);
    return {begin, std::min(part.end, begin + step_)};
  }
  /// Returns the offset in the buffer of each rank's tiles, followed by the end of the last ones. A tile takes `each` bytes or elements.
  Parts parts(i64 piece, i64 each) const {
    Parts begins{0};
    for (int r = 0; r < dealt_.ranks(); ++r) begins.push_back(begins.back() + each * of_rank(r, piece).count());
    return begins;
  }

 private:
  const Dealt& dealt_;
  const i64 step_;
};

/// In all calls of a RankExchange, `queue` is the queue (CUDA stream) that orders the exchange on a GPU. It is null on a CPU.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  /// All-gathers the parts of the data-parallel ranks. `mine` is this rank's part and may already lie at its place in `all`. `mine` and
  /// `all` may be in host memory.
  virtual void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) = 0;
  /// Reduce-scatter in place: replaces this rank's part of `all` by the sum of that part over the data-parallel ranks (ordered_sum.h). The
  /// rest of `all` may change. The data is f32 or f64 and lies on the device.
  virtual void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) = 0;
  /// All-reduce in place: like sum_part(), but sums all of the data on every rank. The data must be whole tiles.
  virtual void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) = 0;

  /// send() and receive() transfer data on the device between pipeline ranks. Messages
  /// between two ranks must be received in the order in which they are sent.
  virtual void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int tag) = 0;
  virtual void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int tag) = 0;

  /// Rethrows the error of any exchange that was on the queues. Called when the queues are empty.
  virtual void settle() {}
};

}  // namespace spillway::parallel
