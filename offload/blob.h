// Bytes at rest in a tier, in whole tiles: a bucket's weights, gradients or optimizer state. A blob in host memory or on the device can be
// seen as a span; one on nvme is read and written through an IoEngine. With two slots generation g lies in slot g % 2, so generation g + 1
// is written while readers see g. Thread-safety: different tile ranges or generations may be moved by different threads at once; ordering
// overlapping ones is the caller's (the Program's).
#pragma once
#include <memory>
#include <span>

#include "device/allocator.h"
#include "device/event.h"
#include "offload/file.h"
#include "offload/io_engine.h"
#include "offload/tier.h"

namespace spillway::offload {

/// Tiles [begin, end) of a blob.
struct TileRange {
  i64 begin = 0, end = 0;
  i64 count() const { return end - begin; }
};

class Blob {
 public:
  virtual ~Blob() = default;
  virtual Tier tier() const = 0;
  i64 tiles() const { return tiles_; }
  i64 tile_bytes() const { return tile_bytes_; }
  int slots() const { return slots_; }
  /// Of one generation.
  i64 bytes() const { return tiles_ * tile_bytes_; }

  /// `into`/`from` hold exactly range.count() * tile_bytes() bytes and stay valid until the event. Counted in the Traffic.
  /// Throws Error(bug) on a range outside the blob or a span of another size.
  virtual Event read(TileRange range, u64 generation, std::span<std::byte> into) = 0;
  virtual Event write(TileRange range, u64 generation, std::span<const std::byte> from) = 0;
  /// The bytes themselves (device and host tiers); empty on nvme.
  virtual std::span<std::byte> view(TileRange range, u64 generation) = 0;

 protected:
  Blob(i64 tiles, i64 tile_bytes, int slots) : tiles_(tiles), tile_bytes_(tile_bytes), slots_(slots) {}
  void check(TileRange range, i64 span_bytes) const;
  const i64 tiles_, tile_bytes_;
  const int slots_;
};

/// In memory of `memory` (a host or device pool); read and write are copies done before the call returns.
std::unique_ptr<Blob> make_memory_blob(Tier tier, Allocator& memory, const char* what, i64 tiles, i64 tile_bytes, int slots,
                                       Traffic& traffic);
/// `offset` and `tile_bytes` are multiples of kDirectAlignment. In [offset, offset + slots * tiles * tile_bytes) of `file`.
std::unique_ptr<Blob> make_file_blob(IoEngine& engine, const File& file, i64 offset, i64 tiles, i64 tile_bytes, int slots,
                                     Traffic& traffic);

}  // namespace spillway::offload
