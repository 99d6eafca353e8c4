#include "offload/store_aside.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <system_error>

#include "base/error.h"
#include "offload/scratch_folder.h"
#include "offload/store_files.h"
#include "offload/store_look.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

// Describes one store that survey() found.
struct Seen {
  std::vector<fs::path> folders;  // folders of the store's files; that of the store's first file comes last
  bool first = false, holds_commit = false;

  void add(const fs::path& folder, const Found& found, const std::string& boot_id) {
    const bool is_first = found.kind == Found::Kind::store && found.header.stripe == 0;
    folders.insert(is_first ? folders.end() : folders.begin(), folder);
    first |= is_first;
    holds_commit |= is_first && !found.holds_no_commit(boot_id);
  }
  // Returns whether the store may hold a commit. This is unknown, and so true, if the first file is missing or damaged.
  bool may_hold_commit() const { return !first || holds_commit; }
};

bool lies_in(const fs::path& folder) {
  std::error_code error;
  return fs::exists(fs::symlink_status(folder / kStoreFile, error));
}

// Returns the id to set a store aside under: its own id, or a random one if another file (a copy) already lies where a file would go.
u64 free_id(const std::vector<fs::path>& folders, u64 id) {
  while (std::ranges::any_of(folders, [&](const fs::path& folder) { return lies_in(aside_of(folder, id)); })) id = random_store_id();
  return id;
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from / kStoreFile, to / kStoreFile, error);
  if (error) {
    throw Error(ErrorCode::io, fmt::format("[store] {} cannot be moved to {}: {}; check the path or give another --nvme path",
                                           (from / kStoreFile).string(), to.string(), error.message()));
  }
  for (const fs::path& folder : {from, to, to.parent_path()}) flush_folder(folder);
}

void remove_unused(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kStoreFile, error);
  if (!error) return;
  throw Error(ErrorCode::io, fmt::format("[store] {} cannot be replaced: {}; check the path or give another --nvme path",
                                         (folder / kStoreFile).string(), error.message()));
}

// Holds the store files found at the paths: valid ones and damaged ones by store id, and blank ones without an id.
// Damaged files are kept apart, so that they never count as part of a store that may be removed.
struct Survey {
  std::map<u64, Seen> stores, others;
  std::vector<fs::path> blank;
};

Survey survey(const StoreDescription& description) {
  Survey all;
  for (const StripePath& path : description.paths) {
    const Found found = look(path.folder);
    if (found.kind == Found::Kind::store) {
      refuse_newer(found.header, (path.folder / kStoreFile).string());
      all.stores[found.header.store_id].add(path.folder, found, description.boot_id);
    }
    if (found.kind == Found::Kind::other) all.others[found.header.store_id].add(path.folder, found, description.boot_id);
    if (found.kind == Found::Kind::blank) all.blank.push_back(path.folder);
  }
  return all;
}

fs::file_time_type last_written(const fs::path& folder) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(folder / kStoreFile, error);
  return error ? fs::file_time_type::min() : time;
}

}  // namespace

void refuse_newer(const StoreDescription& description) { survey(description); }

std::vector<fs::path> set_aside(const StoreDescription& description) {
  const Survey all = survey(description);
  std::vector<fs::path> places;
  for (const std::map<u64, Seen>& group : {all.stores, all.others}) {
    for (const auto& [id, seen] : group) {
      if (!seen.may_hold_commit()) continue;
      const u64 place = free_id(seen.folders, id);
      for (const fs::path& folder : seen.folders) {
        places.push_back(make_aside(folder, place));
        move(folder, places.back());
      }
    }
  }
  for (const auto& [id, seen] : all.stores) {
    if (seen.may_hold_commit()) continue;
    for (const fs::path& folder : seen.folders) remove_unused(folder);
  }
  for (const fs::path& folder : all.blank) remove_unused(folder);
  return places;
}

std::vector<u64> stores_aside(const StoreDescription& description) {
  const fs::path& first = description.paths[0].folder;
  std::vector<u64> ids = asides_of(first);
  std::erase_if(ids, [&](u64 id) {
    const std::optional<StoreHeader> header = whole_header(aside_of(first, id));
    return !header || header->version != kStoreVersion || header->store_id != id;
  });
  std::ranges::stable_sort(ids, std::greater(), [&](u64 id) { return last_written(aside_of(first, id)); });
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
