// Provides helpers that the tests of offload/ share: temporary folders, small filesystems, aligned buffers, and errors as values.
#pragma once
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"
#include "device/memory_pool.h"
#include "tests/support/temporary_folder.h"

namespace spillway::test {

/// Mounts a new filesystem for a test; mounted() is false if the user may not mount.
class MountedFolder {
 public:
  explicit MountedFolder(const char* type, const char* options = "") {
    mounted_ = ::mount("none", folder_.path().c_str(), type, 0, options) == 0;
    if (!mounted_) why_ = std::string("mounting a ") + type + " is not permitted here: " + std::strerror(errno);
  }
  ~MountedFolder() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& why() const { return why_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
  std::string why_;
};

/// Holds a page-aligned buffer, as direct I/O requires.
class Buffer {
 public:
  explicit Buffer(i64 bytes, int fill = 0) : memory_(MemoryPool::heap().allocate(bytes, "test buffer")) {
    std::memset(memory_.data(), fill, static_cast<size_t>(bytes));
  }
  std::byte* data() { return memory_.data(); }
  std::span<std::byte> span() { return {memory_.data(), static_cast<size_t>(memory_.bytes())}; }
  std::span<std::byte> span(i64 begin, i64 bytes) { return span().subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes)); }

 private:
  Allocation memory_;
};

/// Fills bytes so that each byte depends on its position. No two places of a file look alike for long.
inline void fill_pattern(std::span<std::byte> bytes, u64 seed) {
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(((seed * 0x9E3779B97F4A7C15u + i) * 0xBF58476D1CE4E5B9u) >> 56);
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

struct Caught {
  ErrorCode code{};
  std::string text;
  bool says(std::string_view what) const { return text.find(what) != std::string::npos; }
};

/// Returns the Error that `action` throws. The test fails if `action` throws none.
template <class Action>
Caught error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace spillway::test
