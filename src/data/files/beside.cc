#include "data/files/beside.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".partial-";

// Normalises the path, so that "runs/x/" and "runs/x" become equal.
fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// Creates missing folders up to `path` and fsyncs their parents, so that the new names survive a power loss.
void make_durable_folders(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  if (path != parent_of(path)) make_durable_folders(parent_of(path));
  fs::create_directory(path, error);  // an existing folder is no error: another rank may have created it first
  if (error) throw_io("create the folder", path, error.value());
  sync_path(parent_of(path));
}

// Returns `final_name` if `name` is `<final_name>.partial-<pid>` or `<final_name>.partial-<pid>-<n>`, otherwise an empty string.
std::string final_name_of(const std::string& name) {
  const size_t mark = name.rfind(kMark);
  if (mark == name.npos) return "";
  const std::string digits = name.substr(mark + kMark.size());
  const bool ours = !digits.empty() && digits.front() != '-' && digits.find_first_not_of("0123456789-") == digits.npos;
  return ours ? name.substr(0, mark) : "";
}

int open_for_lock(const fs::path& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }

// Returns true if the process that created `path` is dead. A live process holds the flock of its partial file, so
// a partial file without a lock was left by a dead process. On a filesystem without flock the answer is false.
bool is_left(const fs::path& path) {
  const int descriptor = open_for_lock(path);
  if (descriptor < 0) return false;
  const bool free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return free;
}

// Lists the files and folders in `parent` whose name is that of a partial file (see final_name_of). Entries that cannot be listed are
// skipped.
std::vector<fs::path> partial_in(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(parent, error); !error && entry != fs::end(entry); entry.increment(error)) {
    std::error_code unseen;
    const auto type = entry->symlink_status(unseen).type();
    if (final_name_of(entry->path().filename().string()).empty()) continue;
    if (type == fs::file_type::regular || type == fs::file_type::directory) found.push_back(entry->path());
  }
  return found;
}

void remove_left_of(const fs::path& final_path) {
  for (const fs::path& path : partial_in(parent_of(final_path))) {
    std::error_code ignored;  // errors are ignored: the file may belong to another user
    if (final_name_of(path.filename().string()) == final_path.filename() && is_left(path)) fs::remove_all(path, ignored);
  }
}

}  // namespace

std::optional<Beside::Identity> Beside::identity_of(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return Identity{status.st_dev, status.st_ino};
  if (errno != ENOENT) throw_io("get the status of", path, errno);
  return {};
}

Beside::Beside(const fs::path& final_path, Kind kind, Existing existing)
    : final_(without_trailing_slash(final_path)), kind_(kind), existing_(existing) {
  require(kind == Kind::file || existing != Existing::overwrite, "[file] expected a file to overwrite, got a folder");
  if (kind == Kind::folder) make_durable_folders(parent_of(final_));
  // The number of an open inode is not given to another file. So what another program creates at the path has another number.
  old_ = Descriptor(::open(final_.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!old_ && errno != ENOENT) throw_io("open", final_, errno);
  struct stat status {};
  if (old_ && ::fstat(old_.get(), &status) == 0) before_ = Identity{status.st_dev, status.st_ino};
  if (before_ && existing == Existing::refuse) {
    throw Error(ErrorCode::usage,
                fmt::format("[--out] expected a new {}, got {}, which exists: give another name, because nothing is overwritten",
                            kind == Kind::file ? "file" : "folder", final_.string()));
  }
  remove_left_of(final_);
  make();
}

// Creates the partial file or folder and locks it. Between the creation and the lock, another process may
// take the new file for one of a dead process and remove it. In that case make() creates the file again.
void Beside::make() {
  const std::string name = final_.string() + std::string(kMark) + std::to_string(::getpid());
  for (int attempt = 0;; ++attempt) {
    beside_ = attempt == 0 ? name : fmt::format("{}-{}", name, attempt);
    const int made = kind_ == Kind::folder ? ::mkdir(beside_.c_str(), 0777)
                                           : ::open(beside_.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    // The partial name is taken by another thread, or by a process with the same pid on another machine, so the next name is tried.
    if (made < 0 && errno == EEXIST && attempt < 1000) continue;
    if (made < 0) throw_io("create", beside_, errno);
    lock_ = kind_ == Kind::folder ? open_for_lock(beside_) : made;
    if (lock_ < 0 && errno == ENOENT) continue;
    if (lock_ < 0) throw_io("open", beside_, errno);
    // On a filesystem without flock, other processes do not remove partial files, so the missing lock does no harm.
    const bool locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    struct stat ours {};
    if (locked && ::fstat(lock_, &ours) == 0 && identity_of(beside_) == Identity{ours.st_dev, ours.st_ino}) return;
    ::close(lock_);
  }
}

Beside::~Beside() {
  std::error_code ignored;
  if (!done_) fs::remove_all(beside_, ignored);
  ::close(lock_);
}

// Moves the finished file or folder to the final path. Returns false if something already exists at that path.
bool Beside::take_free_place() {
  if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, final_.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS) throw_io("rename the finished file or folder to", final_, errno);
  // Some filesystems do not support RENAME_NOREPLACE. For a file, link() is used instead: it fails if the name exists. For a folder,
  // rename() is used: it fails if the target is not empty.
  if (kind_ == Kind::file && ::link(beside_.c_str(), final_.c_str()) == 0) {
    ::unlink(beside_.c_str());
    return true;
  }
  if (kind_ == Kind::folder && ::rename(beside_.c_str(), final_.c_str()) == 0) return true;
  if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return false;
  throw_io("rename the finished file or folder to", final_, errno);
}

// Replaces the old file or folder at the final path. It is removed only if it is the one that was at
// the path when this object was created. What another program has put at the path since then stays.
void Beside::exchange() {
  if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno == ENOENT && take_free_place()) return;  // the old file or folder was removed in the meantime
    if (errno != EINVAL && errno != ENOSYS) throw_io("replace the old file or folder at", final_, errno);
    if (identity_of(final_) != before_) keep_for_the_user();
    if (::rename(beside_.c_str(), final_.c_str()) != 0) throw_io("rename the finished file or folder to", final_, errno);
    return;
  }
  // After the exchange, the partial name refers to the old file or another program's. So if
  // something fails from here on, the destructor must not remove what has the partial name.
  done_ = true;
  if (identity_of(beside_) != before_) {
    if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) throw_io("restore", final_, errno);
    keep_for_the_user();
  }
  sync_path(parent_of(final_));
  // After the exchange, the partial name refers to the old file or folder. If it cannot be removed now, the next writer to this path
  // removes it.
  std::error_code ignored;
  fs::remove_all(beside_, ignored);
}

void Beside::keep_for_the_user() {
  fs::path kept = fmt::format("{}.finished-{}", final_.string(), ::getpid());
  if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, kept.c_str(), RENAME_NOREPLACE) != 0) kept = beside_;
  done_ = true;
  throw Error(ErrorCode::io, fmt::format("[--out] {} was created by another program while this command wrote its output: that file or "
                                         "folder is unchanged, and the output of this command is {}: move it to where you want it",
                                         final_.string(), kept.string()));
}

void Beside::put_in_place() {
  if (existing_ == Existing::overwrite) {
    if (::rename(beside_.c_str(), final_.c_str()) != 0) throw_io("rename the finished file to", final_, errno);
  } else if (before_) {
    exchange();
  } else if (!take_free_place()) {
    keep_for_the_user();
  }
  done_ = true;
  sync_path(parent_of(final_));
}

std::vector<fs::path> Beside::remove_left(const fs::path& parent) {
  std::vector<fs::path> left = partial_in(parent);
  for (const fs::path& path : left) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw_io("remove the leftover of a process that died,", path, error.value());
  }
  return left;
}

AtomicFile::AtomicFile(const fs::path& final_path, Existing existing)
    : beside_(final_path, Beside::Kind::file, existing), file_(File::open_to_write(beside_.path())) {}

void AtomicFile::commit() {
  file_.sync();
  file_.close();
  beside_.put_in_place();
}

}  // namespace spillway::data
