// Makes this machine's kernel fail a program under test: a seccomp filter lets system calls fail, a lock limit also binds root, and a disk
// disappears from one moment to the next.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"
#include "tests/support/forbid.h"

namespace spillway::test {

/// Makes pread64 and pwrite64 fail with this errno at `offset` and beyond. io_uring_setup fails with ENOSYS, so that the program uses these
/// calls.
void fail_beyond(i64 offset, int error_number);
/// Makes every open with O_DIRECT fail with EINVAL.
void refuse_direct_io();
/// Sets RLIMIT_MEMLOCK to `bytes`. The limit also applies to a root process, because the function takes the capability CAP_IPC_LOCK away
/// from the programs that are started.
void limit_locked_memory(i64 bytes);

/// Holds a mounted ext4 file system on a loop device over a file.
class LoopDisk {
 public:
  LoopDisk(const std::filesystem::path& image, const std::filesystem::path& mounted_at, i64 bytes);
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  /// Returns why this machine cannot make the file system, or "" if it exists.
  const std::string& why_not() const { return why_not_; }
  /// Makes everything on the disk fail from now on, as if the drive had been pulled out.
  void vanish();

 private:
  std::string attach(const std::filesystem::path& image);
  const std::filesystem::path at_;
  std::string device_, why_not_;
  int loop_ = -1;
  bool mounted_ = false;
};

}  // namespace spillway::test
