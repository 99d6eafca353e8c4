// A Blob is a block of bytes stored in one tier as whole tiles of equal size: a group's weights, gradients or optimizer state, or one
// rank's shard of them. The tiles of a shard keep the numbers that they have in the whole group. A blob in host memory or on the device can
// be accessed as a span; one on nvme is read and written through an IoEngine. A generation is one version of the content, and a slot is
// room for one generation. With two slots, generation g lies in slot g % 2, so generation g + 1 can be written while readers see g. Bytes
// on nvme are protected by checksums: call stamp() before write(), and verify() once the event that read() returned is set. For blobs in
// memory, stamp() and verify() do nothing. Thread-safety: different threads may read, write, stamp and verify different tile ranges or
// generations at once; the caller must order overlapping accesses (the order of a rank's instructions does).
#pragma once
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "device/allocator.h"
#include "device/event.h"
#include "device/gpu_queue.h"
#include "offload/io_engine.h"
#include "offload/tier.h"

namespace spillway::offload {

/// Names the tiles of a blob whose numbers lie in [begin, end).
struct TileRange {
  i64 begin = 0, end = 0;
  i64 count() const { return end - begin; }
  bool operator==(const TileRange&) const = default;
};

/// Spoilt is thrown when the bytes read back are not the bytes that were written.
class Spoilt : public Error {
 public:
  Spoilt(const std::string& wrong, const std::string& cure) : Error(ErrorCode::io, wrong + ": " + cure), wrong_(wrong) {}
  /// Returns the part of the message that says what is wrong, without the advice that follows it.
  const std::string& wrong() const { return wrong_; }

 private:
  std::string wrong_;
};

/// Says how one read is done. `priority` decides which of the reads that wait for the drive goes first.
struct ReadOptions {
  Priority priority = Priority::normal;
  // True if the read serves a checkpoint save or other work beside the training steps. Traffic::read_for_saves_bytes then counts its bytes.
  bool for_save = false;
};

class Blob {
 public:
  virtual ~Blob() = default;
  virtual Tier tier() const = 0;
  /// Returns true if the blob lies in GPU memory, which the CPU cannot access.
  virtual bool on_gpu() const { return false; }
  /// Returns true if the CPU can read and write the blob only through a copy in other memory.
  bool is_staged() const { return tier() == Tier::nvme || on_gpu(); }
  /// Returns the blob's name for messages, for example "optimizer state of group 3".
  const std::string& what() const { return what_; }
  /// Returns the range of tiles that this blob holds.
  TileRange held() const { return held_; }
  i64 tiles() const { return held_.count(); }
  i64 tile_bytes() const { return tile_bytes_; }
  int slots() const { return slots_; }
  /// Returns the size of one generation (all tiles, one slot) in bytes.
  i64 bytes() const { return tiles() * tile_bytes_; }

  /// read() starts a copy of the tiles in `range` to `into`; write() starts a copy of `from` to those tiles. `into` and
  /// `from` have exactly range.count() * tile_bytes() bytes and must stay valid until the returned event is set. Traffic
  /// counts the bytes. Both functions throw Error(bug) on a range outside the blob or a span of another size.
  virtual Event read(TileRange range, u64 generation, std::span<std::byte> into, const ReadOptions& options = {}) = 0;
  virtual Event write(TileRange range, u64 generation, std::span<const std::byte> from) = 0;
  /// Returns a view of the stored bytes, without a copy, if the blob is in the device or host tier, and an
  /// empty span if it is on nvme. If the blob lies on a GPU, only that GPU may use the span.
  virtual std::span<std::byte> view(TileRange range, u64 generation) = 0;

  /// Computes and remembers the checksums of `from`, the bytes that the next write() of the same generation (version of the content) will
  /// be given. Call it again before each rewrite. write() throws Error(bug) if the tiles were not stamped; stamp() throws Error(bug) if it
  /// would overwrite a committed generation.
  virtual void stamp(TileRange, u64 /*generation*/, std::span<const std::byte> /*from*/) {}
  /// Compares `read`, the bytes that read() delivered, with the checksums stamped for that generation (version of the content). If they
  /// differ, throws Spoilt, whose message names file, offset, blob, tile, generation and what to do. Throws Error(bug) if no checksums were
  /// stamped.
  virtual void verify(TileRange, u64 /*generation*/, std::span<const std::byte> /*read*/) {}
  /// Returns true if a restart would continue from this generation (version) of the blob's tiles.
  virtual bool is_committed(u64 /*generation*/) const { return false; }

 protected:
  Blob(std::string what, TileRange held, i64 tile_bytes, int slots)
      : what_(std::move(what)), held_(held), tile_bytes_(tile_bytes), slots_(slots) {}
  void check(TileRange range, i64 span_bytes) const;
  const std::string what_;
  const TileRange held_;
  const i64 tile_bytes_;
  const int slots_;
};

/// Holds two queues that copy between a GPU's memory and the host's, so that both directions run at the same time.
struct GpuCopyQueues {
  explicit GpuCopyQueues(Device gpu) : to_host(gpu), to_gpu(gpu) {}
  GpuQueue to_host, to_gpu;
};

/// Makes a blob in memory that `memory` (a host or device pool) allocates. If `queues` is null, the CPU copies, and read() and write()
/// return when the copy is done. Otherwise `queues` belong to the GPU that computes and that owns the device pool's memory. A blob in that
/// memory is copied by the GPU, after the work that is already in the queue; a blob in host memory is copied by the CPU.
std::unique_ptr<Blob> make_memory_blob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots,
                                       Traffic& traffic, const GpuCopyQueues* queues = nullptr);

}  // namespace spillway::offload
