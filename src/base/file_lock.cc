#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

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

// Since boot, of a process of this host: a number that was given again has another (proc(5), field 22 of stat). Empty: there is none.
std::string start_ticks(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream rest(text.substr(name_end + 1));
  std::string field;
  for (int n = 3; n <= 22; ++n) rest >> field;
  return field;
}

struct Holder {
  std::string host, ticks, job, life;
  long pid = 0;

  static Holder self() {
    return {host_name(), start_ticks(::getpid()), environment("SLURM_JOB_ID"), environment("SLURM_RESTART_COUNT"), ::getpid()};
  }
  static std::optional<Holder> of(const fs::path& file) {
    std::ifstream in(file);
    Holder h;
    if (!(in >> h.host >> h.pid >> h.ticks >> h.job >> h.life)) return {};
    return h;
  }
  std::string text() const { return fmt::format("{} {} {} {} {}\n", host, pid, ticks.empty() ? "-" : ticks, job, life); }
  bool is_alive() const {
    const Holder here = self();
    if (host == here.host) return (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM) && start_ticks(pid) == ticks;
    return job == "-" || job != here.job || life == here.life;
  }
};

std::string contents(const fs::path& file) {
  std::ifstream in(file);
  return {(std::istreambuf_iterator<char>(in)), {}};
}

// False: another one was quicker, or its holder is alive.
bool make(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == EEXIST) return false;
  const std::string text = Holder::self().text();
  const bool whole = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (whole) return true;
  if (descriptor >= 0) ::unlink(file.c_str());
  throw Error(ErrorCode::io, fmt::format("[lock] cannot write {}: {}", file.string(), in_words(error)));
}

// A dead holder's file goes by a rename, so that of two who see it one gets it; what was no longer the same is put back.
void remove_dead(const fs::path& file, const std::string& text) {
  const fs::path own = fmt::format("{}.{}.{}", file.string(), host_name(), ::getpid());
  if (::rename(file.c_str(), own.c_str()) != 0) return;
  if (contents(own) != text) {
    if (::link(own.c_str(), file.c_str()) != 0 && errno != EEXIST)
      throw Error(ErrorCode::io, fmt::format("[lock] cannot put {} back: {}", file.string(), in_words(errno)));
  }
  ::unlink(own.c_str());
}

}  // namespace

std::optional<FileLock> FileLock::take(int descriptor, const fs::path& file, Kind kind) {
  FileLock lock;
  if (::flock(descriptor, (kind == Kind::look ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
  lock.why_not_ = in_words(errno);
  const fs::path holder = file.string() + ".holder";
  for (int tries = 0; tries < 3; ++tries) {
    const std::string text = contents(holder);
    const std::optional<Holder> other = Holder::of(holder);
    if (other && other->is_alive()) return std::nullopt;
    if (kind == Kind::look) return lock;
    if (!text.empty()) remove_dead(holder, text);
    if (!make(holder)) continue;
    lock.holder_ = holder;
    return lock;
  }
  return std::nullopt;
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
