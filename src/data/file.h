// A file on disk as the data room sees it: positioned reads and writes that are resumed when short, and every failure an Error that names
// the path, the offset and errno. Positioned access is thread-safe. Reading is by pread, not by mapping: a page that cannot be read is then
// an Error(io) instead of a SIGBUS, and the page cache is the same. Errors: opening for reading Error(data) (unreadable); everything else
// Error(io), a full disk said so in words.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/types.h"

namespace spillway::data {

class File {
 public:
  /// An existing regular file, no pointer of Git LFS (base/lfs_pointer.h). Anything else is refused at once: a named pipe is not waited
  /// for, and opening a device does not act on it.
  static File open(const std::filesystem::path& path);
  /// A new, empty file; an old one of that name is emptied.
  static File create(const std::filesystem::path& path);
  /// An existing regular file, to be written into: others may write other parts of it.
  static File open_to_write(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  /// For locks.
  int descriptor() const { return fd_; }
  /// When it was opened, or as last resized.
  i64 size_bytes() const { return size_bytes_; }

  /// Fills `into` from `offset`; the end of the file before that is an Error(io): it was shortened since it was opened.
  void read(i64 offset, std::span<std::byte> into) const;
  void write(i64 offset, std::span<const std::byte> from);
  void resize(i64 bytes);
  /// resize() of a file that is to be written whole: the disk gives the room now, in one piece, where it can.
  void reserve(i64 bytes);
  /// Starts sending what was written to [offset, offset + bytes) to the disk; does not wait.
  void send(i64 offset, i64 bytes);
  /// Waits until it is there (its contents, not the file's size and name: sync() does that) and drops it from the page cache.
  void send_and_drop(i64 offset, i64 bytes);
  /// Waits until the contents are on stable storage.
  void sync();
  /// Closes and reports what closing reports; the destructor closes silently.
  void close();

 private:
  File(std::filesystem::path path, int fd, i64 size_bytes) : path_(std::move(path)), fd_(fd), size_bytes_(size_bytes) {}
  void expect_regular(ErrorCode otherwise);
  std::filesystem::path path_;
  int fd_ = -1;
  i64 size_bytes_ = 0;
};

/// Throws Error(io): "[file] cannot <what> <path>: <errno in words> (errno n)", with the cure where the disk or the quota is full.
[[noreturn]] void throw_io(std::string_view what, const std::filesystem::path& path, int error);

/// fsync of a file or a folder by name. A folder's fsync makes the names in it durable.
void sync_path(const std::filesystem::path& path);

/// The folder a path lies in.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// A file of this text, its contents on stable storage on return; an old one of that name is emptied first.
void write_text(const std::filesystem::path& path, std::string_view text);

/// The same, whole or not at all: written beside and renamed (data/beside.h), the name durable on return. Death at any instant leaves the
/// old file or the new one; a failure before the rename, the old one and nothing beside. Of several who replace one file the last one wins.
void replace_text(const std::filesystem::path& path, std::string_view text);

/// The first bytes of a regular file, at most `count`; empty where there is none that can be read. Never waits, as for a named pipe.
std::string beginning_of(const std::filesystem::path& path, size_t count);

/// Text from an untrusted file made fit for a message: in quotes, control and non-ASCII characters escaped, at most about 100 characters.
std::string in_quotes(std::string_view text);

}  // namespace spillway::data
