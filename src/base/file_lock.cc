#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

std::string in_words(int error) { return fmt::format("{} (errno {})", std::strerror(error), error); }

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return value && *value && !std::strchr(value, '\n') ? value : "-";
}

std::string host_name() {
  std::array<char, 256> name{"?"};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns a field of /proc/<pid>/stat for a process of this host. Fields are numbered as in proc(5), from 3 on: 3 is the state, 22 the
// start time since boot. The result is empty when there is no such process.
std::string proc_field(long pid, int number) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream rest(text.substr(name_end + 1));
  std::string field;
  for (int n = 3; n <= number; ++n) rest >> field;
  return field;
}

// Returns the start time of process `pid`, in clock ticks since boot. A later process with the same number has a different start time.
std::string start_ticks(long pid) { return proc_field(pid, 22); }

struct Holder {
  std::string host, ticks, job, life;
  long pid = 0;

  static Holder self() {
    return {host_name(), start_ticks(::getpid()), environment("SLURM_JOB_ID"), environment("SLURM_RESTART_COUNT"), ::getpid()};
  }
  static std::optional<Holder> of(const std::string& text) {
    std::istringstream in(text);
    Holder h;
    if (!text.ends_with('\n') || !(in >> h.host >> h.pid >> h.ticks >> h.job >> h.life) || h.pid <= 0) return {};
    return h;
  }
  std::string text() const { return fmt::format("{} {} {} {} {}\n", host, pid, ticks.empty() ? "-" : ticks, job, life); }
  bool is_alive() const {
    const Holder here = self();
    if (host == here.host) return (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM) && start_ticks(pid) == ticks;
    return job == "-" || job != here.job || life == here.life;
  }
};

constexpr std::time_t kNobodyS = 60;  // seconds after which a .holder file that names no process counts as abandoned

// A snapshot of the .holder file, and whether the process that the file names as the lock's holder counts as alive.
struct Beside {
  std::string text;
  std::optional<Holder> holder;
  bool there = false, alive = false;

  explicit Beside(const fs::path& file) {
    struct stat info {};
    std::ifstream in(file);
    const bool readable = in.is_open();
    text.assign((std::istreambuf_iterator<char>(in)), {});
    there = ::stat(file.c_str(), &info) == 0;
    holder = Holder::of(text);
    const bool fresh = std::time(nullptr) - info.st_mtime < kNobodyS;
    alive = there && (!readable || in.bad() || (holder ? holder->is_alive() : fresh));
  }
};

fs::path own_name(const fs::path& file) { return fmt::format("{}.{}.{}", file.string(), host_name(), ::getpid()); }

[[noreturn]] void cannot_write(const fs::path& file, int error) {
  throw Error(ErrorCode::io, fmt::format("[lock] cannot write {}: {}", file.string(), in_words(error)));
}

void write_own(const fs::path& own) {
  ::unlink(own.c_str());  // a dead process may have left a file of the same name, which is a hard link to the .holder file
  const int descriptor = ::open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0) cannot_write(own, errno);
  const std::string text = Holder::self().text();
  const bool whole = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(descriptor);
  if (whole) return;
  ::unlink(own.c_str());
  cannot_write(own, error);
}

// Creates `file` (the .holder file) as a hard link to a file written before. Returns false if another process was quicker. Over NFS, link()
// may report an error although it created the link, so the link count is checked.
bool make(const fs::path& file) {
  const fs::path own = own_name(file);
  write_own(own);
  struct stat info {};
  const int error = ::link(own.c_str(), file.c_str()) == 0 ? 0 : errno;
  const bool made = error == 0 || (::stat(own.c_str(), &info) == 0 && info.st_nlink == 2);
  ::unlink(own.c_str());
  if (!made && error != EEXIST) cannot_write(file, error);
  return made;
}

// Removes temporary files next to the .holder file that dead processes of this host left.
void remove_left_by_dead(const fs::path& file) {
  const std::string begin = fmt::format("{}.{}.", file.filename().string(), host_name());
  std::vector<fs::path> left;
  std::error_code ignored;
  for (fs::directory_iterator at(file.parent_path(), ignored); !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const long pid = name.starts_with(begin) ? std::atol(name.c_str() + begin.size()) : 0;
    if (pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) left.push_back(at->path());
  }
  for (const fs::path& each : left) ::unlink(each.c_str());
}

// Removes the .holder file if the process that it names is dead. The file is renamed first, so that only one of two
// processes that see the file succeeds. If the renamed file turns out to have changed meanwhile, it is put back.
void remove_dead(const fs::path& file, const std::string& text) {
  const fs::path own = own_name(file);
  ::unlink(own.c_str());
  if (::rename(file.c_str(), own.c_str()) != 0) return;
  if (Beside(own).text != text) {
    if (::link(own.c_str(), file.c_str()) != 0 && errno != EEXIST)
      throw Error(ErrorCode::io, fmt::format("[lock] cannot restore {}: {}", file.string(), in_words(errno)));
  }
  ::unlink(own.c_str());
}

fs::path beside(const fs::path& file) { return file.string() + ".holder"; }

}  // namespace

std::optional<FileLock> FileLock::take(int descriptor, const fs::path& file, Kind kind) {
  FileLock lock;
  if (::flock(descriptor, (kind == Kind::look ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
  lock.why_not_ = in_words(errno);
  const fs::path holder = beside(file);
  for (int tries = 0; tries < 3; ++tries) {
    const Beside other(holder);
    if (other.alive) return std::nullopt;
    if (kind == Kind::look) return lock;
    if (other.there) remove_dead(holder, other.text);
    if (!make(holder)) continue;
    lock.holder_ = holder;
    remove_left_by_dead(holder);
    return lock;
  }
  return std::nullopt;
}

void FileLock::sign(int descriptor, const fs::path& file) const {
  const std::string text = fmt::format("host {}, process {}\n", host_name(), ::getpid());
  const bool whole = ::ftruncate(descriptor, 0) == 0 && ::pwrite(descriptor, text.data(), text.size(), 0) == std::ssize(text);
  if (!whole) cannot_write(file, errno);
}

std::string FileLock::holder(const fs::path& file) {
  const Beside now(beside(file));
  std::string host, text;
  long pid = 0;
  if (now.alive && now.holder) {
    host = now.holder->host, pid = now.holder->pid;
  } else {
    std::array<char, 512> begin{};
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0 && ::read(descriptor, begin.data(), begin.size() - 1) > 0) text = begin.data();
    if (descriptor >= 0) ::close(descriptor);
    std::istringstream words(text);
    std::string word;
    if (!(words >> word >> host >> word >> pid) || pid <= 0 || !host.ends_with(',')) return "";
    host.pop_back();
  }
  const bool stopped = host == host_name() && proc_field(pid, 3) == "T";
  return fmt::format("host {}, process {}{}", host, pid,
                     stopped ? fmt::format(", which is stopped (kill -CONT {} resumes the process)", pid) : "");
}

FileLock::FileLock(FileLock&& other) noexcept : holder_(std::exchange(other.holder_, {})), why_not_(std::move(other.why_not_)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(holder_, other.holder_);
  std::swap(why_not_, other.why_not_);
  return *this;
}

FileLock::~FileLock() {
  if (!holder_.empty()) ::unlink(holder_.c_str());
}

}  // namespace spillway
