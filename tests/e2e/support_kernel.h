// Ways to make this kernel unkind to a program under test: system calls that fail by a seccomp filter, a lock limit that binds root too,
// and a disk that is gone from one moment to the next.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"
#include "tests/support/forbid.h"

namespace spillway::test {

/// pread64 and pwrite64 at `offset` and beyond answer with this errno, and io_uring is not there (ENOSYS), so that they are what is used.
void fail_beyond(i64 offset, int error_number);
/// No file is opened with O_DIRECT (EINVAL).
void refuse_direct_io();
/// RLIMIT_MEMLOCK of so many bytes, also for root: the program is not given CAP_IPC_LOCK.
void limit_locked_memory(i64 bytes);

/// An ext4 on a loop device over a file of its own, mounted.
class LoopDisk {
 public:
  LoopDisk(const std::filesystem::path& image, const std::filesystem::path& mounted_at, i64 bytes);
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  /// Empty: it is there. Else why this machine has none.
  const std::string& why_not() const { return why_not_; }
  /// Everything on it fails from now on, as when the drive is pulled.
  void vanish();

 private:
  std::string attach(const std::filesystem::path& image);
  const std::filesystem::path at_;
  std::string device_, why_not_;
  int loop_ = -1;
  bool mounted_ = false;
};

}  // namespace spillway::test
