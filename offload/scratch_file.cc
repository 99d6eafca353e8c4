#include "offload/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "offload/owner_file.h"

namespace spillway::offload {
namespace {

constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

[[noreturn]] void file_failed(const std::filesystem::path& path, const char* call, int error_number) {
  throw Error(ErrorCode::io, fmt::format("[file] {} of {} failed: {} (errno {}); check the path or give another --nvme path", call,
                                         path.string(), std::generic_category().message(error_number), error_number));
}

void make_anew(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) file_failed(path, "removal", errno);
  const int made = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly);
  if (made < 0) file_failed(path, "creation", errno);
  ::close(made);
}

// Returns the free bytes for this user, or -1 if the filesystem does not report them (ramfs).
i64 free_bytes(int descriptor) {
  struct statvfs info {};
  if (::fstatvfs(descriptor, &info) != 0 || info.f_blocks == 0) return -1;
  return static_cast<i64>(info.f_bavail * info.f_frsize);
}

// Returns true if direct I/O works. Reads once: an open with O_DIRECT may succeed on a filesystem where the first read fails with EINVAL.
bool reads_directly(int descriptor) {
  alignas(kDirectAlignment) std::byte page[kDirectAlignment];
  return ::pread(descriptor, page, sizeof page, 0) >= 0 || errno != EINVAL;
}

int reserve_blocks(int descriptor, i64 begin, i64 bytes) {
  int result = 0;
  do {
    result = ::fallocate(descriptor, 0, begin, bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

[[noreturn]] void refuse(const std::filesystem::path& path, i64 wanted_bytes, i64 available_bytes, const char* why) {
  throw Error(
      ErrorCode::refused,
      fmt::format("[file] {}: expected {} of free disk space, got {} ({}): free disk space, give another --nvme path or place less on nvme",
                  path.string(), format_bytes(wanted_bytes), format_bytes(available_bytes), why));
}

}  // namespace

ScratchFile ScratchFile::create(const std::filesystem::path& path, i64 bytes, bool remove_when_closed) {
  require(bytes >= 0, "[file] expected a size of at least 0");
  ScratchFile file;
  file.path_ = path;
  file.bytes_ = bytes;
  make_anew(path);
  file.remove_ = true;  // the destructor removes the file if the code below throws
  file.open_descriptor();
  file.reserve(0);
  file.remove_ = remove_when_closed;
  return file;
}

ScratchFile ScratchFile::open(const std::filesystem::path& path, bool remove_when_closed) {
  ScratchFile file;
  file.path_ = path;
  file.open_descriptor();
  struct stat info {};
  if (::fstat(file.descriptor_, &info) != 0) file_failed(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::usage, "[file] expected " + path.string() + " to be a file");
  check_private(file.descriptor_, path);
  file.bytes_ = info.st_size;
  file.preallocated_ = info.st_blocks * 512 >= info.st_size;
  file.remove_ = remove_when_closed;
  return file;
}

void ScratchFile::open_descriptor() {
  constexpr int kHow = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  descriptor_ = ::open(path_.c_str(), kHow | O_DIRECT);
  direct_ = descriptor_ >= 0 && reads_directly(descriptor_);
  if (direct_) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), kHow);
  if (descriptor_ < 0) file_failed(path_, "open", errno);
}

// Reserves the bytes from `begin`, the file's present end, to bytes_.
void ScratchFile::reserve(i64 begin) {
  const i64 bytes = bytes_ - begin;
  if (bytes == 0) return;
  const int error_number = reserve_blocks(descriptor_, begin, bytes);
  const i64 available_bytes = free_bytes(descriptor_);
  preallocated_ = error_number == 0;
  if (preallocated_) return;
  // Frees the bytes that fallocate reserved before its error.
  if (error_number != EOPNOTSUPP && ::ftruncate(descriptor_, begin) != 0) file_failed(path_, "truncation", errno);
  if (error_number == ENOSPC) refuse(path_, bytes, free_bytes(descriptor_), "the filesystem is full");
  if (error_number == EDQUOT) refuse(path_, bytes, available_bytes, "the disk quota is used up");
  if (error_number == EFBIG) refuse(path_, bytes, available_bytes, "the file is larger than the filesystem or ulimit -f allows");
  if (error_number != EOPNOTSUPP) file_failed(path_, "fallocate", error_number);
  if (available_bytes >= 0 && available_bytes < bytes) refuse(path_, bytes, available_bytes, "the filesystem cannot reserve space");
  if (::ftruncate(descriptor_, bytes_) != 0) file_failed(path_, "truncation", errno);
}

void ScratchFile::resize(i64 bytes) {
  require(bytes >= 0, "[file] expected a size of at least 0");
  const i64 before = bytes_;
  if (bytes < before && ::ftruncate(descriptor_, bytes) != 0) file_failed(path_, "truncation", errno);
  bytes_ = bytes;
  if (bytes <= before) return;
  try {
    reserve(before);
  } catch (const Error&) {
    bytes_ = before;
    throw;
  }
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      direct_(other.direct_),
      preallocated_(other.preallocated_),
      remove_(std::exchange(other.remove_, false)) {}

ScratchFile::~ScratchFile() {
  if (remove_) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace spillway::offload
