// File wraps a file on disk. Reads and writes take an offset and continue after short transfers; errors name the path, the
// offset and errno. Reads and writes at offsets are thread-safe. Reading uses pread instead of mmap, so that a page that
// cannot be read gives Error(io) rather than a SIGBUS; the page cache is used either way. Throws Error(data) if a file
// cannot be opened for reading, and Error(io) for every other failure. The message says in words when the disk is full.
#pragma once
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/types.h"

namespace spillway::data {

class File {
 public:
  /// Opens an existing regular file for reading. Refuses at once a Git LFS pointer
  /// (base/lfs_pointer.h), a named pipe (open would block) and a device (opening it might act on it).
  static File open(const std::filesystem::path& path);
  /// Creates an empty file. If a file of that name exists, it is truncated.
  static File create(const std::filesystem::path& path);
  /// Opens an existing regular file for writing at offsets. Meanwhile other processes may write other parts of the file.
  static File open_to_write(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  /// Returns the file descriptor, for locking.
  int descriptor() const { return fd_; }
  /// Returns the file's size in bytes, as it was when the file was opened or last resized.
  i64 size_bytes() const { return size_bytes_; }

  /// Fills `into` with the file's bytes from `offset` on. Throws Error(io) if the file ends earlier, which means that it was shortened
  /// after it was opened.
  void read(i64 offset, std::span<std::byte> into) const;
  /// Returns the file's first `most_bytes` bytes, or all of a smaller file.
  std::string text(i64 most_bytes = std::numeric_limits<i64>::max()) const;
  void write(i64 offset, std::span<const std::byte> from);
  void resize(i64 bytes);
  /// Sets the size of a file of which every byte will be written. If the
  /// filesystem supports it, the disk space is allocated now, in one piece.
  void reserve(i64 bytes);
  /// Starts writing bytes [offset, offset + bytes) from the page cache to the disk, and does not wait for the end of the writing.
  void send(i64 offset, i64 bytes);
  /// Waits until bytes [offset, offset + bytes) are on the disk and drops them from the page cache.
  /// The wait covers the file's contents only. The file's size and name become durable with sync().
  void send_and_drop(i64 offset, i64 bytes);
  /// Waits until the file's contents are on stable storage.
  void sync();
  /// Closes the file and throws if closing reports an error. The destructor ignores such errors.
  void close();

 private:
  File(std::filesystem::path path, int fd, i64 size_bytes) : path_(std::move(path)), fd_(fd), size_bytes_(size_bytes) {}
  void expect_regular(ErrorCode otherwise);
  std::filesystem::path path_;
  int fd_ = -1;
  i64 size_bytes_ = 0;
};

/// Throws Error(io) "[file] cannot <what> <path>: <errno in words> (errno n)". If the
/// disk or the quota is full, or too many files are open, the message adds a remedy.
[[noreturn]] void throw_io(std::string_view what, const std::filesystem::path& path, int error);

/// Calls fsync on a file or folder by path. The fsync of a folder makes the names of its entries durable.
void sync_path(const std::filesystem::path& path);

/// Returns the folder that contains `path`.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// Writes a file with this text. When the function returns, the contents
/// are on stable storage. An existing file of that name is truncated first.
void write_text(const std::filesystem::path& path, std::string_view text);

/// Replaces a file by this text atomically: the text is written under a temporary name, which is then renamed (data/files/beside.h),
/// and the name is durable on return. A crash at any instant leaves either the old file or the new one. A failure before the
/// rename leaves the old one and no temporary file. If several processes replace one file, the last one wins.
void replace_text(const std::filesystem::path& path, std::string_view text);

/// Returns the first bytes of a regular file, `count` at most. Returns an empty string if there
/// is no such file or it cannot be read. The function never blocks, not even on a named pipe.
std::string beginning_of(const std::filesystem::path& path, size_t count);

/// Prepares text from an untrusted file for an error message: puts it in quotes,
/// escapes control and non-ASCII characters, and cuts it at about 100 characters.
std::string in_quotes(std::string_view text);

}  // namespace spillway::data
