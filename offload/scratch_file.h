// One preallocated file on a scratch path, opened with O_DIRECT where the filesystem takes it. Owns the descriptor; removes the file on
// destruction when asked to. Readable by its owner alone: it holds weights. Thread-safe once made: but for keep() all is const.
#pragma once
#include <filesystem>

#include "base/types.h"

namespace spillway::offload {

/// Offsets, sizes and addresses of direct I/O are multiples of this.
constexpr i64 kDirectAlignment = 4096;

class ScratchFile {
 public:
  /// Creates, in place of a file of this name, and preallocates `bytes` with fallocate, or, where the filesystem has none, sets the size
  /// after looking whether it would fit. Errors: Error(refused) when the filesystem has no room (free and wanted bytes, the flag that
  /// helps), Error(io) otherwise; then nothing stays behind.
  static ScratchFile create(const std::filesystem::path& path, i64 bytes, bool remove_when_closed = true);
  /// Opens what is there for reading and writing; bytes() is its size. Errors: Error(io); Error(usage) for what is no file of this user
  /// alone. Never through a link.
  static ScratchFile open(const std::filesystem::path& path, bool remove_when_closed = false);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  /// To `bytes`: what is added is reserved as create() does, what is beyond is given back; nothing below is touched. Errors:
  /// Error(refused) without room, and the size is as before; Error(io).
  void resize(i64 bytes);
  /// The destructor leaves the file in place, whatever was asked before.
  void keep() { remove_ = false; }
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  i64 bytes() const { return bytes_; }
  /// False: the filesystem refused O_DIRECT, and the page cache stands between.
  bool direct() const { return direct_; }
  /// False: the filesystem could not reserve the bytes, and a write may still find it full.
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
