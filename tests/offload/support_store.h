// Provides a small store over two paths. Every tile's content is determined by its blob, number and generation (version of the data), so
// tests can tell whose data they read. A fixture serves tests of the files that such a store leaves.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "offload/nvme_store.h"
#include "tests/offload/support_files.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test {

/// Describes one blob. Tile sizes are chosen so that tiles cross stripe units (of 3 pages).
struct SmallBlob {
  const char* what;
  i64 tiles, tile_bytes;
  int slots;
  bool persistent;
};
constexpr SmallBlob kSmallBlobs[] = {{"weights", 5, 8192, 2, true},
                                     {"optimizer state", 3, 16384, 2, true},
                                     {"frozen weights", 2, 4096, 1, true},
                                     {"gradients", 4, 8192, 1, false}};

inline offload::StoreDescription small_description(const std::vector<offload::StripePath>& paths, offload::Durability durability) {
  offload::StoreDescription description;
  description.paths = paths;
  description.run_id = "small";
  description.layout_hash = 7;
  for (const SmallBlob& blob : kSmallBlobs) {
    description.data_bytes += blob.slots * blob.tiles * blob.tile_bytes;
    if (blob.persistent) description.persistent_tiles += blob.tiles;
    if (!blob.persistent) description.passing_bytes += blob.slots * blob.tiles * blob.tile_bytes;
  }
  description.durability = durability;
  description.stripe_unit_bytes = 3 * offload::kPageBytes;
  return description;
}

inline void fill_tile(std::span<std::byte> tile, size_t blob, i64 number, u64 generation) {
  fill_pattern(tile, blob + 10 * static_cast<u64>(number) + 1000 * (generation + 1));
}

/// Returns the content of all tiles of a blob in a generation (version of the data). The content is cached, so only one thread may call
/// this function.
inline std::span<const std::byte> tiles_of(size_t blob, u64 generation) {
  static std::map<std::pair<size_t, u64>, std::vector<std::byte>> made;
  std::vector<std::byte>& tiles = made[{blob, generation}];
  const SmallBlob& b = kSmallBlobs[blob];
  if (tiles.empty()) {
    tiles.resize(static_cast<size_t>(b.tiles * b.tile_bytes));
    for (i64 t = 0; t < b.tiles; ++t) {
      fill_tile(std::span(tiles).subspan(static_cast<size_t>(t * b.tile_bytes), static_cast<size_t>(b.tile_bytes)), blob, t, generation);
    }
  }
  return tiles;
}

class SmallStore {
 public:
  SmallStore(offload::IoEngine& engine, const offload::StoreDescription& description)
      : store(offload::NvmeStore::open_or_create(engine, traffic, description)) {
    for (const SmallBlob& b : kSmallBlobs) blobs.push_back(store.make_blob(b.what, {0, b.tiles}, b.tile_bytes, b.slots, b.persistent));
  }

  /// Stamps one tile and starts to write it. The buffer is kept until finish().
  void write_tile(size_t blob, i64 tile, u64 generation) {
    Buffer& out = *written_.emplace_back(std::make_unique<Buffer>(blobs[blob]->tile_bytes()));
    fill_tile(out.span(), blob, tile, generation);
    blobs[blob]->stamp({tile, tile + 1}, generation, out.span());
    events_.push_back(blobs[blob]->write({tile, tile + 1}, generation, out.span()));
  }
  /// Starts the writes of a generation (version of the data). Frozen weights are written only in the first generation.
  void start_generation(u64 generation, bool first) {
    for (size_t b = 0; b < blobs.size(); ++b) {
      if (b == 2 && !first) continue;
      for (i64 t = 0; t < blobs[b]->tiles(); ++t) write_tile(b, t, generation);
    }
  }
  void finish() {
    for (const Event& event : events_) event.wait();
    events_.clear();
    written_.clear();
  }
  void write_generation(u64 generation, bool first) {
    start_generation(generation, first);
    finish();
  }

  /// Returns what is wrong with the persistent tiles of a generation, or an empty text if all verify and hold what was written.
  std::string objection(u64 generation, u64 first_generation) {
    for (size_t b = 0; b < 3; ++b) {
      offload::Blob& blob = *blobs[b];
      Buffer in(blob.bytes());
      blob.read({0, blob.tiles()}, generation, in.span()).wait();
      try {
        blob.verify({0, blob.tiles()}, generation, in.span());
      } catch (const Error& error) {
        return error.what();
      }
      if (!same(in.span(), tiles_of(b, b == 2 ? first_generation : generation))) return blob.what() + " holds something else";
    }
    return {};
  }

  offload::Traffic traffic;
  offload::NvmeStore store;
  std::vector<std::unique_ptr<offload::Blob>> blobs;

 private:
  std::vector<std::unique_ptr<Buffer>> written_;
  std::vector<Event> events_;
};

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// StoreTest is a fixture whose runs leave their files behind. It has functions to damage or change those files.
class StoreTest : public testing::Test {
 protected:
  StoreTest() { clear(); }
  offload::StoreDescription describe(offload::Durability durability = offload::Durability::checkpoint) {
    return small_description({{place(0), 2}, {place(1), 1}}, durability);
  }
  // Runs the store as a process that writes and commits generations (versions of the data) [begin, end) and then dies.
  void run(u64 begin, u64 end, const offload::StoreDescription& description) {
    SmallStore store(engine_, description);
    for (u64 g = begin; g < end; ++g) {
      store.write_generation(g, g == begin);
      store.store.commit(g, "record " + std::to_string(g));
    }
  }
  std::string why_new(const offload::StoreDescription& description) {
    offload::Traffic traffic;
    return offload::NvmeStore::open_or_create(engine_, traffic, description).why_new();
  }
  std::filesystem::path place(int stripe) const { return (stripe == 0 ? first_ : second_) / "spillway-small"; }
  std::filesystem::path file(int stripe) const { return place(stripe) / offload::kStoreFile; }
  // Empties the scratch folders, as if there had never been a store.
  void clear() {
    for (const TemporaryFolder* scratch : {&first_, &second_}) {
      for (const auto& entry : std::filesystem::directory_iterator(scratch->path())) std::filesystem::remove_all(entry.path());
    }
    for (const int stripe : {0, 1}) std::filesystem::create_directory(place(stripe));
  }
  // Changes bytes of a file without the store's knowledge.
  static void edit(const std::filesystem::path& path, i64 offset, i64 bytes, const std::function<void(std::byte*)>& change) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    ASSERT_EQ(::pread(descriptor, data.data(), data.size(), offset), bytes);
    change(data.data());
    ASSERT_EQ(::pwrite(descriptor, data.data(), data.size(), offset), bytes);
    ::close(descriptor);
  }
  static void flip_bit(const std::filesystem::path& path, i64 offset) {
    edit(path, offset, 1, [](std::byte* byte) { *byte ^= std::byte{8}; });
  }
  // Changes the header and gives it a valid checksum, so that the change looks intended.
  void forge(int stripe, const std::function<void(offload::StoreHeader&)>& change) {
    edit(file(stripe), 0, offload::kPageBytes, [&](std::byte* bytes) {
      offload::StoreHeader header;
      std::memcpy(&header, bytes, sizeof header);
      change(header);
      header.crc = crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(offload::StoreHeader, crc)));
      std::memcpy(bytes, &header, sizeof header);
    });
  }

  TemporaryFolder first_, second_;
  FaultyEngine engine_;
};

}  // namespace spillway::test
