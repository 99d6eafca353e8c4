#include "offload/scratch_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "spillway-";
constexpr const char* kOwnerFile = "owner";
// list_orphans of another process may hold the lock for an instant: this many tries, 10 ms apart, before an owner counts as alive.
constexpr int kLockTries = 20;

[[noreturn]] void folder_failed(const fs::path& path, const char* call, int error_number) {
  throw Error(ErrorCode::io, fmt::format("[run folder] {} of {} failed: {} (errno {}); look at the path or give --nvme another", call,
                                         path.string(), std::generic_category().message(error_number), error_number));
}

// An open file description that gives up its lock when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// Never through a link.
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

// Without exceptions, which a destructor could not let through; stops at the first entry that cannot be read.
std::vector<fs::path> entries(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> paths;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) paths.push_back(at->path());
  return paths;
}

bool try_lock(int descriptor, int how, const fs::path& path) {
  if (::flock(descriptor, how | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  folder_failed(path, "flock", errno);
}

bool lock_patiently(int descriptor, const fs::path& path) {
  for (int tries = 1;; ++tries) {
    if (try_lock(descriptor, LOCK_EX, path)) return true;
    if (tries == kLockTries) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The lock is on an inode: whoever cleaned up meanwhile may have unlinked it.
bool still_there(int descriptor, const fs::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

std::string read_line(int descriptor) {
  std::array<char, 512> text{};
  const auto n = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string_view all(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return std::string(all.substr(0, all.find('\n')));
}

std::string owner_line(const std::string& run_id) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::time_t now = std::time(nullptr);
  return fmt::format("host={} pid={} run={} started={:%Y-%m-%dT%H:%M:%SZ}\n", host.data(), ::getpid(), run_id, fmt::gmtime(now));
}

void write_owner(int descriptor, const fs::path& path, const std::string& run_id) {
  const std::string line = owner_line(run_id);
  if (::ftruncate(descriptor, 0) != 0) folder_failed(path, "truncation", errno);
  if (::pwrite(descriptor, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) folder_failed(path, "write", errno);
}

void check_id(const std::string& id) {
  const auto allowed = [](unsigned char c) { return (c < 128 && std::isalnum(c)) || c == '.' || c == '_' || c == '-'; };
  if (!id.empty() && id.size() <= 200 && std::all_of(id.begin(), id.end(), allowed)) return;
  throw Error(ErrorCode::usage, fmt::format("[run folder] expected a run id of letters, digits, '.', '_', '-', got '{}'", id));
}

Descriptor open_owner(const fs::path& owner) { return Descriptor(::open(owner.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600)); }

// Takes the owner lock of an existing folder; nothing when the folder vanished meanwhile.
std::optional<Descriptor> lock_folder(const fs::path& folder) {
  const fs::path owner = folder / kOwnerFile;
  Descriptor lock = open_owner(owner);
  if (lock.get() < 0 && errno == ENOENT) return std::nullopt;
  if (lock.get() < 0) folder_failed(owner, "open", errno);
  if (!lock_patiently(lock.get(), owner)) {
    throw Error(ErrorCode::usage,
                fmt::format("[run folder] {} is in use ({}): expected a folder of its own for each run; give --nvme another path",
                            folder.string(), read_line(lock.get())));
  }
  if (!still_there(lock.get(), owner)) return std::nullopt;
  return lock;
}

// The owner file goes last: until then the folder is visibly taken.
std::error_code remove_folder(const fs::path& folder) {
  std::error_code error, first;
  for (const fs::path& entry : entries(folder, first)) {
    if (entry.filename() == kOwnerFile) continue;
    fs::remove_all(entry, error);
    if (error && !first) first = error;
  }
  if (first) return first;
  fs::remove(folder / kOwnerFile, error);
  if (!error) fs::remove(folder, error);
  return error;
}

// True when it was not there.
bool make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return true;
  if (errno != EEXIST) folder_failed(folder, "mkdir", errno);
  std::error_code error;
  const fs::file_type type = fs::symlink_status(folder, error).type();
  if (type == fs::file_type::directory || type == fs::file_type::not_found) return false;
  throw Error(ErrorCode::usage, "[run folder] " + folder.string() + " is there and no folder: remove it or give --nvme another path");
}

// A folder whose owner cannot be written (a full disk) does not stay behind.
void sign(int lock, const fs::path& folder, const std::string& run_id, bool made) {
  try {
    write_owner(lock, folder / kOwnerFile, run_id);
  } catch (...) {
    if (made) remove_folder(folder);
    throw;
  }
}

i64 bytes_on_drive(const fs::path& folder) {
  i64 bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) == 0) bytes += info.st_blocks * 512;
  }
  return bytes;
}

i64 age_s(const fs::path& folder) {
  struct stat info {};
  if (::stat((folder / kOwnerFile).c_str(), &info) != 0 && ::stat(folder.c_str(), &info) != 0) return 0;
  return std::max<i64>(0, std::time(nullptr) - info.st_mtime);
}

// Nothing for a live owner and for what this user may not look into.
std::optional<Orphan> look_at(const fs::path& folder) {
  const Descriptor owner(::open((folder / kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (owner.get() < 0 && errno != ENOENT) return std::nullopt;
  if (owner.get() >= 0 && !try_lock(owner.get(), LOCK_SH, folder)) return std::nullopt;
  std::error_code error;
  const fs::directory_iterator readable(folder, error);
  if (error) return std::nullopt;
  return Orphan{folder.filename().string(), owner.get() < 0 ? std::string() : read_line(owner.get()), bytes_on_drive(folder),
                age_s(folder)};
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& scratch, const std::string& run_id)
    : path_(fs::absolute(scratch) / (std::string(kPrefix) + run_id)) {
  check_id(run_id);
  for (;;) {
    const bool made = make_folder(path_);
    std::optional<Descriptor> lock = lock_folder(path_);
    if (!lock) continue;  // somebody removed it meanwhile
    sign(lock->get(), path_, run_id, made);
    lock_ = lock->release();
    taken_over_ = !made;
    return;
  }
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)), taken_over_(other.taken_over_), keep_(other.keep_) {}

ScratchFolder::~ScratchFolder() {
  if (lock_ < 0) return;
  if (!keep_) remove_folder(path_);  // what cannot be removed is an orphan from now on, and will be found
  ::close(lock_);
}

std::vector<Orphan> list_orphans(const fs::path& scratch) {
  std::vector<Orphan> orphans;
  std::error_code error;
  for (const fs::path& entry : entries(scratch, error)) {
    if (!entry.filename().string().starts_with(kPrefix) || !is_folder(entry)) continue;
    if (auto orphan = look_at(entry)) orphans.push_back(std::move(*orphan));
  }
  std::sort(orphans.begin(), orphans.end(), [](const Orphan& a, const Orphan& b) { return a.name < b.name; });
  return orphans;
}

void remove_orphan(const fs::path& scratch, const std::string& name) {
  const fs::path folder = scratch / name;
  if (!name.starts_with(kPrefix) || name.find('/') != std::string::npos || !is_folder(folder)) {
    throw Error(ErrorCode::usage,
                fmt::format("[run folder] expected the name of a folder {}* in {}, got '{}'", kPrefix, scratch.string(), name));
  }
  const std::optional<Descriptor> lock = lock_folder(folder);
  if (!lock) return;  // somebody else removed it
  const std::error_code error = remove_folder(folder);
  if (error) folder_failed(folder, "removal", error.value());
}

}  // namespace spillway::offload
