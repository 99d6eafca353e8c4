#include "trainer/node/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace spillway::trainer {

std::optional<std::string> Host::real_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> Host::read(const std::string& absolute) const {
  return read_whole(root / std::filesystem::path(absolute).relative_path());
}

namespace {

bool is_opened_for_us(const std::filesystem::path& path) {
  const auto folder = path.parent_path();
  return folder == "/dev/fd" || folder == "/proc/self/fd" || path == "/dev/stdin";
}

// Reads the last `last_bytes` of a file. A `last_bytes` of 0 means the whole file.
std::optional<std::string> read_from(const std::filesystem::path& path, i64 last_bytes) {
  constexpr size_t kMostBytes = size_t{1} << 30, kPieceBytes = 64 * 1024;
  const bool ours = is_opened_for_us(path);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (ours ? 0 : O_NONBLOCK));
  if (descriptor < 0) return std::nullopt;
  struct stat status {};
  bool whole = ::fstat(descriptor, &status) == 0 && (S_ISREG(status.st_mode) || (ours && !S_ISDIR(status.st_mode)));
  if (whole && last_bytes > 0 && status.st_size > last_bytes) whole = ::lseek(descriptor, -last_bytes, SEEK_END) >= 0;
  std::string text;
  for (ssize_t read = 1; whole && read > 0;) {
    const size_t had = text.size();
    text.resize(had + kPieceBytes);  // the loop reads pieces until the end of the file, because files in /proc report a size of 0
    do read = ::read(descriptor, text.data() + had, kPieceBytes);
    while (read < 0 && errno == EINTR);
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(read, 0)));
    whole = read >= 0 && text.size() <= kMostBytes;
  }
  ::close(descriptor);
  return whole ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

std::optional<std::string> read_whole(const std::filesystem::path& path) { return read_from(path, 0); }

std::string read_tail(const std::filesystem::path& path, i64 bytes) { return read_from(path, bytes).value_or(""); }

std::filesystem::path cache_folder(const Host& host) {
  const auto cache = host.env("XDG_CACHE_HOME");
  return (cache ? std::filesystem::path(*cache) : std::filesystem::path(host.env("HOME").value_or(".")) / ".cache") / "spillway";
}

}  // namespace spillway::trainer
