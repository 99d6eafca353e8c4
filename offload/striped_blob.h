// A StripedBlob is a blob in the nvme store: whole tiles in the striped data range, with their
// checksums. Made by NvmeStore::make_blob alone. Thread-safety: as offload/blob.h says.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "offload/blob.h"
#include "offload/store_files.h"
#include "offload/tile_checksums.h"

namespace spillway::offload {

constexpr u64 kNeverCommitted = ~u64{0};

/// Holds state that all blobs of a store share. It outlives the blobs.
struct BlobHome {
  StoreFiles& files;
  Traffic& traffic;
  std::atomic<u64> committed{kNeverCommitted};  // the generation (version of the data) that a restart finds
};

class StripedBlob final : public Blob {
 public:
  /// Makes a blob with room for `slots` generations, which occupies the bytes [begin, begin + slots * bytes()) of the store's data.
  StripedBlob(BlobHome& home, std::string what, i64 begin, i64 first_tile, i64 tile_bytes, bool persistent,
              std::shared_ptr<TileChecksums> checksums);

  Tier tier() const override { return Tier::nvme; }
  Event read(TileRange range, u64 generation, std::span<std::byte> into, const ReadOptions& options) override;
  Event write(TileRange range, u64 generation, std::span<const std::byte> from) override;
  std::span<std::byte> view(TileRange, u64) override { return {}; }
  void stamp(TileRange range, u64 generation, std::span<const std::byte> from) override;
  void verify(TileRange range, u64 generation, std::span<const std::byte> read) override;
  bool is_committed(u64 generation) const override;

 private:
  i64 place(i64 tile, u64 generation) const;
  void check_uncommitted(u64 generation) const;
  [[noreturn]] void spoilt(i64 tile, u64 generation, u32 expected, u32 got) const;

  BlobHome& home_;
  const i64 begin_;
  const bool persistent_;
  const std::shared_ptr<TileChecksums> checksums_;
};

}  // namespace spillway::offload
