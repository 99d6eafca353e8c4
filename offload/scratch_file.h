// A ScratchFile is one preallocated file on a scratch path (a folder given with --nvme), opened with O_DIRECT if the filesystem
// supports it. It owns the descriptor and, if asked to, removes the file on destruction. Only the user who owns the file can read it,
// since it holds weights. Once the file is open, all methods but keep() and resize() are const and thread-safe.
#pragma once
#include <filesystem>

#include "base/types.h"

namespace spillway::offload {

/// Direct I/O has this alignment in bytes: offsets, sizes and buffer addresses must be multiples of it.
constexpr i64 kDirectAlignment = 4096;

class ScratchFile {
 public:
  /// Creates the file, replacing one of this name, and preallocates `bytes` with fallocate. If the filesystem has no fallocate, checks that
  /// the bytes would fit and sets the size. Errors: Error(refused) if the filesystem has no room (the message gives the free and the wanted
  /// bytes and names the flag that helps), Error(io) otherwise; in both cases no file stays behind.
  static ScratchFile create(const std::filesystem::path& path, i64 bytes, bool remove_when_closed = true);
  /// Opens an existing file for reading and writing; bytes() is its size. Does not follow a symbolic link. Errors: Error(io); Error(usage)
  /// if it is not a regular file that belongs to this user alone.
  static ScratchFile open(const std::filesystem::path& path, bool remove_when_closed = false);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  /// Changes the size to `bytes`. Growth is reserved as in create(), excess is freed; bytes inside both the old and the new size keep
  /// their values. Errors: Error(refused) if the filesystem has no room, and then the size is unchanged; Error(io).
  void resize(i64 bytes);
  /// Makes the destructor leave the file in place, even if its removal was asked for before.
  void keep() { remove_ = false; }
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  i64 bytes() const { return bytes_; }
  /// Returns false if the filesystem refused O_DIRECT, so that I/O goes through the page cache.
  bool direct() const { return direct_; }
  /// Returns false if the filesystem could not reserve the bytes, so that a write may still fail because it is full.
  bool preallocated() const { return preallocated_; }

 private:
  ScratchFile() = default;
  void open_descriptor();
  void reserve(i64 begin);

  std::filesystem::path path_;
  int descriptor_ = -1;
  i64 bytes_ = 0;
  bool direct_ = false, preallocated_ = false, remove_ = false;
};

}  // namespace spillway::offload
