// What lies where a file of a store would, by its first pages: read before anything is opened, moved or removed, through the page cache and
// without an engine. Whether it may hold a commit decides what opening a store leaves alone. Functions keep no state. Used by NvmeStore's
// parts alone.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "offload/nvme_store.h"

namespace spillway::offload {

/// It is one, of any version, and nothing of it has changed since it was written.
bool is_whole(const StoreHeader& header);
/// As its writer makes it.
u32 crc_of(const StoreHeader& header);

struct Found {
  enum class Kind {
    nothing,
    blank,  // made and never written to: whoever made it died, and all of it is zeros
    store,  // its header is whole
    other,  // a damaged header, or not ours
  };
  Kind kind = Kind::nothing;
  StoreHeader header{};                    // whole or not, zeros behind the end of the file
  Superblock superblocks[kSuperblocks]{};  // what lies in their place, in a file that is not a store's first too

  /// A restart finds nothing in it, or in the store of which it is the first file: its superblocks are blank, or from an earlier boot where
  /// that makes them worthless. Of a whole header of this version.
  bool holds_no_commit(const std::string& boot_id) const;
};

/// Errors: Error(io) when it cannot be read, Error(usage) when it is no file.
Found look(const std::filesystem::path& folder);

/// Throws Error(data) for the header of a newer program's file.
void refuse_newer(const StoreHeader& header, const std::string& name);

/// The header in a folder's file, when it is whole; what cannot be read has none.
std::optional<StoreHeader> whole_header(const std::filesystem::path& folder);

}  // namespace spillway::offload
