#include "data/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "data/files/beside.h"

namespace spillway::data {
namespace {

std::string in_words(int error) { return fmt::format("{} (errno {})", std::strerror(error), error); }

// Linux transfers at most 2 GiB - 4 KiB per call. Pieces of 1 GiB stay below that, and a signal can interrupt a long transfer between
// pieces.
constexpr size_t kPieceBytes = size_t{1} << 30;

// Calls sync_file_range. A filesystem that does not support the call is no error, because File::sync() writes everything anyway.
void send_range(const File& file, int fd, i64 offset, i64 bytes, unsigned how) {
  if (::sync_file_range(fd, offset, bytes, how) == 0 || errno == ENOSYS || errno == EINVAL || errno == ESPIPE || errno == EOPNOTSUPP)
    return;
  throw_io(fmt::format("start writing back {} bytes at offset {} of", bytes, offset), file.path(), errno);
}

// Throws if the file is a Git LFS pointer: a small text that stands for a
// file that was not downloaded. No caller wants to read the pointer's text.
void refuse_pointer(const File& file) {
  if (file.size_bytes() >= kLfsPointerLimitBytes) return;
  refuse_lfs_pointer(file.path().string(), file.text());
}

}  // namespace

void throw_io(std::string_view what, const std::filesystem::path& path, int error) {
  const char* cure = "";
  if (error == ENOSPC) cure = ": the disk is full, free some space or choose another path";
  if (error == EDQUOT) cure = ": your disk quota is used up, free some space or choose another path";
  if (error == EMFILE || error == ENFILE) cure = ": raise the limit on open files (ulimit -n)";
  throw Error(ErrorCode::io, fmt::format("[file] cannot {} {}: {}{}", what, path.string(), in_words(error), cure));
}

File File::open(const std::filesystem::path& path) {
  // O_NONBLOCK makes open() return at once for a named pipe, which is then refused below. Without the flag, open() would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) throw_io("open", path, errno);
  if (fd < 0) throw Error(ErrorCode::data, fmt::format("[file] cannot open {}: {}", path.string(), in_words(errno)));
  File file(path, fd, 0);
  file.expect_regular(ErrorCode::data);
  refuse_pointer(file);
  return file;
}

File File::open_to_write(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_io("open for writing", path, errno);
  File file(path, fd, 0);
  file.expect_regular(ErrorCode::io);
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw_io("create", path, errno);
  return File(path, fd, 0);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::expect_regular(ErrorCode otherwise) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw_io("get the status of", path_, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(otherwise, fmt::format("[file] expected a regular file, got a {}: {}",
                                       S_ISDIR(status.st_mode) ? "folder" : "device or pipe", path_.string()));
  }
  size_bytes_ = status.st_size;
}

std::string File::text(i64 most_bytes) const {
  std::string text(static_cast<size_t>(std::min(size_bytes_, most_bytes)), ' ');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void File::read(i64 offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t n = ::pread(fd_, into.data(), std::min(into.size(), kPieceBytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io(fmt::format("read {} bytes at offset {} of", into.size(), offset), path_, errno);
    if (n == 0) {
      throw Error(
          ErrorCode::io,
          fmt::format(
              "[file] {} ends at offset {}, but had {} bytes when it was opened: another program shortened the file in the meantime",
              path_.string(), offset, size_bytes_));
    }
    into = into.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void File::write(i64 offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t n = ::pwrite(fd_, from.data(), std::min(from.size(), kPieceBytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io(fmt::format("write {} bytes at offset {} of", from.size(), offset), path_, errno);
    from = from.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void File::resize(i64 bytes) {
  if (::ftruncate(fd_, bytes) != 0) throw_io(fmt::format("allocate {} bytes for", bytes), path_, errno);
  size_bytes_ = bytes;
}

void File::reserve(i64 bytes) {
  if (bytes > 0 && ::fallocate(fd_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
    throw_io(fmt::format("allocate {} bytes for", bytes), path_, errno);
  resize(bytes);
}

void File::send(i64 offset, i64 bytes) { send_range(*this, fd_, offset, bytes, SYNC_FILE_RANGE_WRITE); }

void File::send_and_drop(i64 offset, i64 bytes) {
  send_range(*this, fd_, offset, bytes, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(fd_, offset, bytes, POSIX_FADV_DONTNEED);
}

void File::sync() {
  if (::fsync(fd_) != 0) throw_io("sync", path_, errno);
}

void File::close() {
  if (::close(std::exchange(fd_, -1)) != 0) throw_io("close", path_, errno);
}

void sync_path(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_io("open for syncing", path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error) throw_io("sync", path, error);
}

std::filesystem::path parent_of(const std::filesystem::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void replace_text(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path, Existing::overwrite);
  file.file().write(0, std::as_bytes(std::span(text)));
  file.commit();
}

std::string beginning_of(const std::filesystem::path& path, size_t count) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  struct stat status {};
  std::string text(count, '\0');
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t n = regular ? ::pread(fd, text.data(), count, 0) : -1;
  ::close(fd);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 100;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kLongest ? "…\"" : "\"");
}

}  // namespace spillway::data
