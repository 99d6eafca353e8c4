#include "offload/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
#include "offload/owner_file.h"
#include "offload/store_format.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "spillway-", kAside = ".aside-";
constexpr size_t kIdDigits = 16;  // hexadecimal digits of a store's id
// The number of tries to take the lock, 10 ms apart, before its owner counts as alive. Another process that calls list_orphans() may hold
// the lock for an instant.
constexpr int kLockTries = 20;

[[noreturn]] void folder_failed(const fs::path& path, const char* call, int error_number) {
  throw Error(ErrorCode::io, fmt::format("[run folder] {} of {} failed: {} (errno {}); check the path or give --nvme another path", call,
                                         path.string(), std::generic_category().message(error_number), error_number));
}

// Returns true for a folder, but not for a symbolic link to one.
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

// Lists the entries of `folder`. Does not throw, because a destructor calls it; stops at the first entry that cannot be read.
std::vector<fs::path> entries(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> paths;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) paths.push_back(at->path());
  return paths;
}

// Holds an owner file that is open and locked.
struct OwnerLock {
  Descriptor file;
  FileLock lock;
};

std::optional<FileLock> lock_patiently(int descriptor, const fs::path& path) {
  for (int tries = 1;; ++tries) {
    if (std::optional<FileLock> lock = FileLock::take(descriptor, path)) return lock;
    if (tries == kLockTries) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Returns true if the open file still has the name `path`. The lock belongs to the
// inode, and a process that cleaned up may have removed the name meanwhile.
bool still_there(int descriptor, const fs::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

void check_id(const std::string& id) {
  const auto allowed = [](unsigned char c) { return (c < 128 && std::isalnum(c)) || c == '.' || c == '_' || c == '-'; };
  if (!id.empty() && id.size() <= 200 && std::all_of(id.begin(), id.end(), allowed)) return;
  throw Error(ErrorCode::usage, fmt::format("[run folder] expected a run id of letters, digits, '.', '_', '-', got '{}'", id));
}

// Returns the id of the store if the folder's name ends like that of a store that was set aside.
std::optional<u64> aside_id(std::string_view name) {
  const size_t at = name.rfind(kAside);
  if (at == std::string_view::npos) return {};
  const std::string digits(name.substr(at + kAside.size()));
  if (digits.size() != kIdDigits || digits.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
  return std::stoull(digits, nullptr, 16);
}

// Returns the id of the run that a folder of this name belongs to.
std::string run_of(std::string_view name) {
  if (aside_id(name)) name = name.substr(0, name.rfind(kAside));
  return std::string(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
}

// Returns true if the folder holds nothing but an unwritten owner file. Its owner died before writing the file, or is about to write it.
bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  const std::vector<fs::path> all = entries(folder, error);
  const bool nothing = std::ranges::all_of(all, [](const fs::path& entry) { return entry.filename().string().starts_with(kOwnerFile); });
  std::error_code none;
  return !error && nothing && (all.empty() || fs::file_size(folder / kOwnerFile, none) == 0) && !none;
}

bool holds_a_store_alone(const fs::path& folder) {
  std::error_code error;
  const std::vector<fs::path> all = entries(folder, error);
  return !error && std::ranges::all_of(all, [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    std::error_code unseen;
    return (name == kOwnerFile || name == kStoreFile || name.starts_with(std::string(kOwnerFile) + ".holder")) &&
           fs::is_regular_file(fs::symlink_status(entry, unseen));
  });
}

bool owns(const Owner& owner, const fs::path& folder) {
  return owner.run == run_of(folder.filename().string()) && (!owner.old || holds_a_store_alone(folder));
}

[[noreturn]] void not_ours(const fs::path& folder) {
  throw Error(ErrorCode::usage, fmt::format("[run folder] expected {} to contain the owner file of run {}, got none: this is not the "
                                            "folder of a run; remove it or give --nvme another path",
                                            folder.string(), run_of(folder.filename().string())));
}

// Opens the folder's owner file, creating it in an empty folder. Returns nothing if the folder vanished meanwhile.
std::optional<Descriptor> open_owner(const fs::path& folder) {
  const Descriptor inside(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (inside.get() < 0 && errno == ENOENT) return std::nullopt;
  if (inside.get() < 0) folder_failed(folder, "open", errno);
  check_private(inside.get(), folder);
  const fs::path file = folder / kOwnerFile;
  for (int tries = 1;; ++tries) {
    constexpr int kHow = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int number = ::openat(inside.get(), kOwnerFile, kHow);
    if (number < 0 && errno == ENOENT) {
      if (!holds_nothing(folder)) not_ours(folder);
      number = ::openat(inside.get(), kOwnerFile, kHow | O_CREAT | O_EXCL, 0600);
      if (number < 0 && errno == ENOENT) return std::nullopt;  // another process removed the folder meanwhile
    }
    if (number < 0 && errno == EEXIST && tries < kLockTries) continue;  // another process created the owner file first
    if (number < 0) folder_failed(file, "open", errno);
    Descriptor owner(number);
    check_private(owner.get(), file);
    return owner;
  }
}

// Takes the owner lock of an existing folder. Returns nothing if the folder vanished meanwhile.
std::optional<OwnerLock> lock_folder(const fs::path& folder) {
  std::optional<Descriptor> file = open_owner(folder);
  if (!file) return std::nullopt;
  const fs::path path = folder / kOwnerFile;
  std::optional<FileLock> lock = lock_patiently(file->get(), path);
  const std::optional<Owner> owner = read_owner(file->get());
  if (!lock) {
    const std::string holder = FileLock::holder(path), signed_by = owner ? owner->text : "another process is just starting to use it";
    throw Error(ErrorCode::usage,
                fmt::format("[run folder] {} is in use ({}): expected a separate folder for each run; give --nvme another path",
                            folder.string(), holder.empty() ? signed_by : holder));
  }
  if (!still_there(file->get(), path)) return std::nullopt;
  if (owner ? !owns(*owner, folder) : !holds_nothing(folder)) not_ours(folder);
  return OwnerLock{std::move(*file), std::move(*lock)};
}

// Removes the folder and its content. The owner file goes last, so that until then the folder is visibly in use.
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

// Creates the folder. Returns true if it did not exist before.
bool make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return true;
  if (errno != EEXIST) folder_failed(folder, "mkdir", errno);
  std::error_code error;
  const fs::file_type type = fs::symlink_status(folder, error).type();
  if (type == fs::file_type::directory || type == fs::file_type::not_found) return false;
  throw Error(ErrorCode::usage, "[run folder] " + folder.string() + " exists but is not a folder: remove it or give --nvme another path");
}

// Writes the owner file. If that fails (a full disk) and the folder was just made, the folder is removed again.
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

// Describes the folder as an orphan. Returns nothing if its owner lives, if no run made it, or if this user may not read it.
std::optional<Orphan> look_at(const fs::path& folder) {
  const Descriptor file(::open((folder / kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return std::nullopt;
  const std::string name = folder.filename().string();
  const std::optional<Owner> owner = read_owner(file.get());
  if (!owner || !owns(*owner, folder) || !FileLock::take(file.get(), folder / kOwnerFile, FileLock::Kind::look)) return std::nullopt;
  std::error_code error;
  const fs::directory_iterator readable(folder, error);
  if (error) return std::nullopt;
  return Orphan{name, owner->run, owner->text, aside_id(name).has_value(), bytes_on_drive(folder), age_s(folder)};
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& scratch, const std::string& run_id)
    : path_(fs::absolute(scratch) / (std::string(kPrefix) + run_id)) {
  check_id(run_id);
  for (;;) {
    const bool made = make_folder(path_);
    std::optional<OwnerLock> owner = lock_folder(path_);
    if (!owner) continue;  // another process removed the folder meanwhile
    sign(owner->file.get(), path_, run_id, made);
    lock_.emplace(std::move(owner->lock));
    owner_ = owner->file.release();
    taken_over_ = keep_ = !made;
    return;
  }
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::move(other.path_)),
      owner_(std::exchange(other.owner_, -1)),
      lock_(std::move(other.lock_)),
      taken_over_(other.taken_over_),
      keep_(other.keep_) {}

ScratchFolder::~ScratchFolder() {
  if (owner_ < 0) return;
  if (!keep_) remove_folder(path_);  // a folder that cannot be removed becomes an orphan, which list_orphans finds
  lock_.reset();
  ::close(owner_);
}

fs::path aside_of(const fs::path& folder, u64 store_id) {
  return folder.parent_path() / fmt::format("{}{}{:016x}", folder.filename().string(), kAside, store_id);
}

std::vector<u64> asides_of(const fs::path& folder) {
  std::vector<u64> ids;
  std::error_code error;
  for (const fs::path& entry : entries(folder.parent_path(), error)) {
    const std::string name = entry.filename().string();
    const std::optional<u64> id = aside_id(name);
    if (id && entry == aside_of(folder, *id) && is_folder(entry)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

fs::path make_aside(const fs::path& folder, u64 store_id) {
  fs::path aside = aside_of(folder, store_id);
  const bool made = make_folder(aside);
  const std::optional<OwnerLock> owner = lock_folder(aside);
  if (!owner) folder_failed(aside, "open", ENOENT);
  sign(owner->file.get(), aside, run_of(folder.filename().string()), made);
  return aside;
}

void remove_aside(const fs::path& folder, u64 store_id) {
  const fs::path aside = aside_of(folder, store_id);
  const std::optional<OwnerLock> owner = lock_folder(aside);
  const std::error_code error = owner ? remove_folder(aside) : std::error_code();
  if (error) folder_failed(aside, "removal", error.value());
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
  std::error_code unseen;
  if (!name.starts_with(kPrefix) || name.find('/') != std::string::npos || !is_folder(folder) || !fs::exists(folder / kOwnerFile, unseen)) {
    throw Error(ErrorCode::usage, fmt::format("[run folder] expected the name of a run's folder {}* with an owner file in {}, got '{}'",
                                              kPrefix, scratch.string(), name));
  }
  const std::optional<OwnerLock> lock = lock_folder(folder);
  if (!lock) return;  // another process removed the folder
  const std::error_code error = remove_folder(folder);
  if (error) folder_failed(folder, "removal", error.value());
}

}  // namespace spillway::offload
