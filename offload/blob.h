// Bytes at rest in a tier, in whole tiles: a group's weights, gradients or optimizer state, or a rank's part of them, whose tiles keep
// their numbers. A blob in host memory or on the device can be seen as a span; one on nvme is read and written through an IoEngine. With
// two slots generation g lies in slot g % 2, so generation g + 1 is written while readers see g. Bytes that leave memory carry checksums:
// stamp() them before write(), verify() them after read()'s event; in memory both do nothing. Thread-safety: different tile ranges or
// generations may be moved, stamped and verified by different threads at once; ordering overlapping ones is the caller's (the Program's).
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

/// Tiles [begin, end).
struct TileRange {
  i64 begin = 0, end = 0;
  i64 count() const { return end - begin; }
  bool operator==(const TileRange&) const = default;
};

/// Bytes that are not what was written.
class Spoilt : public Error {
 public:
  Spoilt(const std::string& wrong, const std::string& cure) : Error(ErrorCode::io, wrong + ": " + cure), wrong_(wrong) {}
  /// What is wrong, without what to do about it.
  const std::string& wrong() const { return wrong_; }

 private:
  std::string wrong_;
};

/// `priority` orders a read among others that wait for the drive.
struct ReadOptions {
  Priority priority = Priority::normal;
  bool for_save = false;  // or for what else is beside the steps
};

class Blob {
 public:
  virtual ~Blob() = default;
  virtual Tier tier() const = 0;
  /// The CPU cannot see it.
  virtual bool on_gpu() const { return false; }
  /// What the CPU reads or writes of it goes through other memory.
  bool is_staged() const { return tier() == Tier::nvme || on_gpu(); }
  /// Its name in messages: "optimizer state of group 3".
  const std::string& what() const { return what_; }
  /// The tiles it holds.
  TileRange held() const { return held_; }
  i64 tiles() const { return held_.count(); }
  i64 tile_bytes() const { return tile_bytes_; }
  int slots() const { return slots_; }
  /// Of one generation.
  i64 bytes() const { return tiles() * tile_bytes_; }

  /// `into`/`from` hold exactly range.count() * tile_bytes() bytes and stay valid until the event. Counted in the Traffic.
  /// Throws Error(bug) on a range outside the blob or a span of another size.
  virtual Event read(TileRange range, u64 generation, std::span<std::byte> into, const ReadOptions& options = {}) = 0;
  virtual Event write(TileRange range, u64 generation, std::span<const std::byte> from) = 0;
  /// The bytes themselves (device and host tiers); empty on nvme. Of a blob on a GPU for that GPU alone.
  virtual std::span<std::byte> view(TileRange range, u64 generation) = 0;

  /// Remembers the checksums of `from`, which write() of the same generation will be given; again before each rewrite. A write without is
  /// Error(bug), and so is a stamp over a committed generation.
  virtual void stamp(TileRange, u64 /*generation*/, std::span<const std::byte> /*from*/) {}
  /// Throws Spoilt with file, offset, blob, tile, generation and cure when `read` is not what was stamped for that generation;
  /// Error(bug) when nothing was.
  virtual void verify(TileRange, u64 /*generation*/, std::span<const std::byte> /*read*/) {}
  /// Its tiles of this generation are what a restart would go on from.
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

/// What copies between a GPU's memory and the host's, both ways at once.
struct GpuCopyQueues {
  explicit GpuCopyQueues(Device gpu) : to_host(gpu), to_gpu(gpu) {}
  GpuQueue to_host, to_gpu;
};

/// In memory of `memory` (a host or device pool); read and write are copies done before the call returns. `queues`: of the GPU that
/// computes, whose memory the device pool is, and which then copies, behind what is on the queue already; null: the CPU computes.
std::unique_ptr<Blob> make_memory_blob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots,
                                       Traffic& traffic, const GpuCopyQueues* queues = nullptr);

}  // namespace spillway::offload
