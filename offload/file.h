// One preallocated file on a scratch path, opened with O_DIRECT where the filesystem takes it. Owns the descriptor; removes the file on
// destruction when asked to.
#pragma once
#include <filesystem>
#include <string>

#include "base/types.h"

namespace spillway::offload {

/// Offsets, sizes and addresses of direct I/O are multiples of this.
constexpr i64 kDirectAlignment = 4096;

class File {
 public:
  /// Creates (truncating) and preallocates `bytes` with fallocate. Errors: Error(refused) when the filesystem has no room (free and wanted
  /// bytes, the flag that helps), Error(io) otherwise.
  static File create(const std::filesystem::path& path, i64 bytes, bool remove_when_closed = true);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  i64 bytes() const { return bytes_; }
  bool direct() const { return direct_; }

 private:
  File() = default;
  std::filesystem::path path_;
  int descriptor_ = -1;
  i64 bytes_ = 0;
  bool direct_ = false, remove_ = false;
};

}  // namespace spillway::offload
