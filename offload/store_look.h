// Finds out what lies at the place of a store's file by reading its first pages, before anything is opened, moved or removed, through the
// page cache and without an I/O engine. The code that opens a store thus avoids deleting a file that may hold a commit. The functions keep
// no state. Used by NvmeStore's parts alone.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "offload/nvme_store.h"

namespace spillway::offload {

/// Returns true if this is a store's header, of any version, and its checksum holds, so nothing has changed since it was written.
bool is_whole(const StoreHeader& header);
/// Returns the checksum that the header's writer stores in `crc`.
u32 crc_of(const StoreHeader& header);

struct Found {
  enum class Kind {
    nothing,
    blank,  // preallocated but never written to, all zeros: the process that made it died
    store,  // the file begins with a valid header of a store
    other,  // the header is damaged, or the file is not a store's
  };
  Kind kind = Kind::nothing;
  // the first bytes of the file, whether or not they are a valid header; zeros beyond the end of the file
  StoreHeader header{};
  Superblock superblocks[kSuperblocks]{};  // the bytes of pages 1 and 2, which are superblocks only in a store's first file

  /// Returns true if this is the first file of a store in which a restart finds no commit: each superblock is blank, or is from an earlier
  /// boot while the store's durability is not `step`. Returns false if the header is damaged, of another version, or not that of a first
  /// file.
  bool holds_no_commit(const std::string& boot_id) const;
};

/// Reads the first pages of the store's file in `folder`. Errors: Error(io) if it cannot be read, Error(usage) if it is not a regular file.
Found look(const std::filesystem::path& folder);

/// Throws Error(data) if the header was written by a newer program.
void refuse_newer(const StoreHeader& header, const std::string& name);

/// Returns the header of the store's file in `folder`, or nothing if the header is not valid or cannot be read.
std::optional<StoreHeader> whole_header(const std::filesystem::path& folder);

}  // namespace spillway::offload
