// Checks whether a scratch path (--nvme), on which runs make their scratch folders, is fit for the nvme tier. Looks at the filesystem under
// it (statfs), its free bytes, and whether direct I/O works there. `doctor` calls inspect_scratch; a run calls prepare_scratch before it
// plans. Thread-safe: no state. The checks leave no files behind; only prepare_scratch creates a folder, namely the path itself.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"

namespace spillway::offload {

/// Describes the kind of a filesystem, found from the filesystem's magic number (statfs).
struct FilesystemKind {
  std::string name;     // name such as "ext4", "nfs" or "tmpfs"; "0x1234" if the number is unknown
  bool memory = false;  // true for tmpfs, ramfs and hugetlbfs, whose files are in host memory and count as such
  // true if it is shared with other machines or served by a process (FUSE, 9p); it is then slow and unsuitable for offloading
  bool network = false;
};
FilesystemKind classify_filesystem(u64 magic);

struct ScratchInfo {
  std::filesystem::path path;
  bool exists = false;  // whether the path exists; if not, its last component is missing, and the other fields describe its parent
  FilesystemKind filesystem;
  i64 free_bytes = 0, total_bytes = 0;  // bytes for this user; 0 if the filesystem does not report them (ramfs)
  bool direct = false;                  // whether files can be opened with O_DIRECT (I/O past the page cache)
};

/// Examines `path` and returns what it finds. Errors: Error(usage) if neither the path nor its parent is a folder this user may write to.
ScratchInfo inspect_scratch(const std::filesystem::path& path);

/// Throws Error(usage) if the path is on a network filesystem and `allow_network` (--allow-network-nvme) is false.
void admit_scratch(const ScratchInfo& info, bool allow_network);

/// Calls inspect_scratch and admit_scratch, then creates the path's last component if it is
/// missing. The order matters, because a refused path must leave no folder behind.
ScratchInfo prepare_scratch(const std::filesystem::path& path, bool allow_network);

}  // namespace spillway::offload
