#include "offload/store_aside.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include "base/error.h"
#include "offload/commit_log.h"
#include "offload/scratch_folder.h"
#include "offload/store_files.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

// A store, as far as its files are seen.
struct Found {
  std::vector<fs::path> folders;
  bool of_use = true;  // unless its first file is there and says otherwise
};

bool has_commit(const fs::path& folder, const StoreHeader& header, const std::string& boot_id) {
  std::ifstream file(folder / kStoreFile, std::ios::binary);
  for (i64 page = 0; page < kSuperblocks; ++page) {
    Superblock superblock{};
    file.seekg(kSuperblockOffset + page * kPageBytes);
    file.read(reinterpret_cast<char*>(&superblock), sizeof superblock);
    const bool durable = header.durability == static_cast<u32>(Durability::step);
    if (file && is_whole(superblock) && superblock.store_id == header.store_id && (durable || written_in(superblock, boot_id))) return true;
  }
  return false;
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from / kStoreFile, to / kStoreFile, error);
  if (error) {
    throw Error(ErrorCode::io, fmt::format("[store] {} cannot be moved to {}: {}; look at the path or give another --nvme path",
                                           (from / kStoreFile).string(), to.string(), error.message()));
  }
  for (const fs::path& folder : {from, to, to.parent_path()}) flush_folder(folder);
}

}  // namespace

std::vector<fs::path> set_aside(const StoreDescription& description) {
  std::map<u64, Found> found;
  for (const StripePath& path : description.paths) {
    const std::optional<StoreHeader> header = whole_header(path.folder);
    if (!header) continue;
    Found& store = found[header->store_id];
    store.folders.push_back(path.folder);
    if (header->stripe == 0) store.of_use = has_commit(path.folder, *header, description.boot_id);
  }
  std::vector<fs::path> places;
  for (const auto& [id, store] : found) {
    for (const fs::path& folder : store.folders) {
      if (!store.of_use) continue;
      places.push_back(make_aside(folder, id));
      move(folder, places.back());
    }
  }
  return places;
}

std::vector<u64> stores_aside(const StoreDescription& description) {
  std::vector<u64> ids = asides_of(description.paths[0].folder);
  std::erase_if(ids, [&](u64 id) {
    const std::optional<StoreHeader> header = whole_header(aside_of(description.paths[0].folder, id));
    return !header || header->version != kStoreVersion || header->store_id != id;
  });
  return ids;
}

StoreDescription aside(const StoreDescription& description, u64 store_id) {
  StoreDescription there = description;
  for (StripePath& path : there.paths) path.folder = aside_of(path.folder, store_id);
  return there;
}

void bring_back(const StoreDescription& description, u64 store_id) {
  for (const StripePath& path : description.paths) move(aside_of(path.folder, store_id), path.folder);
  for (const StripePath& path : description.paths) remove_aside(path.folder, store_id);
}

}  // namespace spillway::offload
