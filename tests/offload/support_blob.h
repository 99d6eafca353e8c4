// Provides a store over two paths that holds a single blob, for tests of blobs and of code that streams through them.
#pragma once
#include <memory>
#include <string>

#include "offload/nvme_store.h"
#include "tests/offload/support_files.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test {

class StoreBlob {
 public:
  StoreBlob(i64 tiles, i64 tile_bytes, int slots, offload::Traffic& traffic, offload::IoEngineKind kind = offload::IoEngineKind::pread,
            i64 first_tile = 0)
      : engine_(kind), store_(offload::NvmeStore::open_or_create(engine_, traffic, describe(slots * tiles * tile_bytes, tiles))) {
    blob_ = store_.make_blob("blob", {first_tile, first_tile + tiles}, tile_bytes, slots, true);
  }
  offload::Blob& blob() { return *blob_; }
  FaultySystem& system() { return engine_.system(); }

 private:
  offload::StoreDescription describe(i64 data_bytes, i64 tiles) const {
    offload::StoreDescription description;
    description.paths = {{first_.path(), 2}, {second_.path(), 1}};
    description.run_id = "blob";
    description.data_bytes = data_bytes;
    description.persistent_tiles = tiles;
    description.stripe_unit_bytes = 3 * offload::kPageBytes;  // this size makes most tiles cross stripe units
    return description;
  }

  TemporaryFolder first_, second_;
  FaultyEngine engine_;
  offload::NvmeStore store_;
  std::unique_ptr<offload::Blob> blob_;
};

/// Records the checksums of tiles and then writes the tiles, as every writer must.
inline Event stamp_and_write(offload::Blob& blob, offload::TileRange range, u64 generation, std::span<const std::byte> from) {
  blob.stamp(range, generation, from);
  return blob.write(range, generation, from);
}

}  // namespace spillway::test
