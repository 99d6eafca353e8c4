#include "offload/scratch_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "offload/scratch_file.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

struct KnownFilesystem {
  u64 magic;
  const char* name;
  bool memory, network;
};

// Lists the magic numbers of filesystems. They are from linux/magic.h, or, if that header lacks them, from the filesystem's own sources.
constexpr KnownFilesystem kKnown[] = {
    {EXT4_SUPER_MAGIC, "ext4", false, false},
    {XFS_SUPER_MAGIC, "xfs", false, false},
    {BTRFS_SUPER_MAGIC, "btrfs", false, false},
    {F2FS_SUPER_MAGIC, "f2fs", false, false},
    {OVERLAYFS_SUPER_MAGIC, "overlay", false, false},
    {MSDOS_SUPER_MAGIC, "vfat", false, false},
    {0x2011BAB0, "exfat", false, false},
    {0x2FC12FC1, "zfs", false, false},
    {0xCA451A4E, "bcachefs", false, false},
    {TMPFS_MAGIC, "tmpfs", true, false},
    {RAMFS_MAGIC, "ramfs", true, false},
    {HUGETLBFS_MAGIC, "hugetlbfs", true, false},
    {NFS_SUPER_MAGIC, "nfs", false, true},
    {SMB_SUPER_MAGIC, "smb", false, true},
    {0xFF534D42, "cifs", false, true},
    {0xFE534D42, "smb2", false, true},
    {0x0BD00BD0, "lustre", false, true},
    {0x47504653, "gpfs", false, true},
    {0x19830326, "beegfs", false, true},
    {FUSE_SUPER_MAGIC, "fuse", false, true},
    {V9FS_MAGIC, "9p", false, true},
    {0x00C36400, "ceph", false, true},
    {AFS_SUPER_MAGIC, "afs", false, true},
    {AFS_FS_MAGIC, "afs", false, true},
    {CODA_SUPER_MAGIC, "coda", false, true},
    {0x20030528, "orangefs", false, true},
    {0xAAD7AAEA, "panfs", false, true},
};

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] void unusable(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::usage,
              fmt::format("[nvme] {} cannot be used: {}; give --nvme a folder this user may write to", path.string(), why));
}

// Returns the folder whose filesystem will hold the data: the path itself, or its parent if the path does not exist.
fs::path existing_folder(const fs::path& path, bool& exists) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  exists = fs::exists(status);
  if (exists && !fs::is_directory(status)) unusable(path, "it is not a folder");
  if (exists) return path;
  fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error)) unusable(path, fmt::format("the path and its parent folder {} do not exist", parent.string()));
  return parent;
}

// Returns true if direct I/O works in the folder. Creates a small file there, writes to it with O_DIRECT, and removes it.
bool probe_direct(const fs::path& folder) {
  static std::atomic<u64> count{0};  // gives each probe file a different name, since two threads may probe one folder
  const fs::path probe = folder / fmt::format(".spillway-probe-{}-{}", ::getpid(), count++);
  int descriptor = ::open(probe.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) unusable(folder, fmt::format("no file can be created there: {} (errno {})", text_of(errno), errno));
  ::close(descriptor);
  descriptor = ::open(probe.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  alignas(kDirectAlignment) const std::byte page[kDirectAlignment] = {};
  // Only EINVAL and EOPNOTSUPP mean that direct I/O is refused; an error such as a full disk does not.
  const bool direct = descriptor >= 0 && (::pwrite(descriptor, page, sizeof page, 0) >= 0 || (errno != EINVAL && errno != EOPNOTSUPP));
  if (descriptor >= 0) ::close(descriptor);
  ::unlink(probe.c_str());
  return direct;
}

}  // namespace

FilesystemKind classify_filesystem(u64 magic) {
  for (const KnownFilesystem& known : kKnown) {
    if (known.magic == magic) return {known.name, known.memory, known.network};
  }
  return {fmt::format("{:#x}", magic), false, false};
}

ScratchInfo inspect_scratch(const fs::path& given) {
  ScratchInfo info;
  info.path = fs::absolute(given.has_filename() ? given : given.parent_path()).lexically_normal();
  const fs::path folder = existing_folder(info.path, info.exists);
  struct statfs stat {};
  if (::statfs(folder.c_str(), &stat) != 0) unusable(folder, fmt::format("statfs failed: {} (errno {})", text_of(errno), errno));
  info.filesystem = classify_filesystem(static_cast<u32>(stat.f_type));
  const auto block_bytes = static_cast<i64>(stat.f_frsize > 0 ? stat.f_frsize : stat.f_bsize);
  info.free_bytes = static_cast<i64>(stat.f_bavail) * block_bytes;
  info.total_bytes = static_cast<i64>(stat.f_blocks) * block_bytes;
  info.direct = probe_direct(folder);
  return info;
}

void admit_scratch(const ScratchInfo& info, bool allow_network) {
  if (!info.filesystem.network || allow_network) return;
  throw Error(ErrorCode::usage, fmt::format("[nvme] {} is on a network filesystem ({}): expected a local drive such as $SLURM_TMPDIR or "
                                            "/local; to use it anyway, add --allow-network-nvme",
                                            info.path.string(), info.filesystem.name));
}

ScratchInfo prepare_scratch(const fs::path& path, bool allow_network) {
  ScratchInfo info = inspect_scratch(path);
  admit_scratch(info, allow_network);
  std::error_code error;
  if (!info.exists) fs::create_directory(info.path, error);
  if (error) unusable(info.path, error.message());
  info.exists = true;
  return info;
}

}  // namespace spillway::offload
