#include "app/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/node/host.h"
#include "base/error.h"
#include "data/file.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& path) { return read_whole(path).value_or(""); }

std::string owner() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("host {}, process {}\n", host, ::getpid());
}

// A look by run_owner() holds the lock for an instant, which must not turn a run away.
bool take_lock(int descriptor) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kPause);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> run_owner(const fs::path& run) {
  const int descriptor = ::open((run / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  if (!held) return {};
  const std::string text = whole_file(run / "lock");
  return text.substr(0, text.find('\n'));
}

RunFolder::RunFolder(fs::path path, bool writes) : path_(std::move(path)) {
  if (!writes) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw Error(ErrorCode::usage, fmt::format("[run folder] cannot make --out {}: {}", path_.string(), error.message()));
  const fs::path file = path_ / "lock";
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw Error(ErrorCode::usage, fmt::format("[run folder] cannot open {}: {}", file.string(), std::strerror(errno)));
  if (!take_lock(lock_)) {
    ::close(lock_);
    throw Error(ErrorCode::usage,
                fmt::format("[run folder] {} is in use by {}wait for it, or give another --out", path_.string(), whole_file(file)));
  }
  const std::string text = owner();
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, text.data(), text.size(), 0) < 0) {
    ::close(lock_);
    throw Error(ErrorCode::io, fmt::format("[run folder] cannot write {}: {}", file.string(), std::strerror(errno)));
  }
  log_.open(path_ / "log.txt", std::ios::app);
}

RunFolder::~RunFolder() {
  if (writes()) ::close(lock_);
}

std::string RunFolder::config_text() const { return whole_file(path_ / "config.json"); }
void RunFolder::write_config(const std::string& json) {
  if (writes()) data::replace_text(path_ / "config.json", json);
}

i64 RunFolder::open_metrics(i64 step) {
  if (!writes()) return 0;
  const fs::path file = path_ / "metrics.jsonl";
  std::istringstream old(whole_file(file));
  std::string kept;
  i64 last = 0;
  for (std::string line; step > 0 && std::getline(old, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    const i64 its_step = row.is_object() ? row.value("step", i64{0}) : 0;
    if (its_step < 1 || its_step > step) continue;
    kept += line + "\n";
    last = its_step;
  }
  data::replace_text(file, kept);
  metrics_.open(file, std::ios::app);
  return last;
}

void RunFolder::metrics_line(const std::string& json) {
  if (!writes()) return;
  metrics_ << json << "\n";
  metrics_.flush();
  if (!metrics_) {
    throw Error(ErrorCode::io, fmt::format("[run folder] cannot append to {}: {} (errno {})", (path_ / "metrics.jsonl").string(),
                                           std::strerror(errno), errno));
  }
}

void RunFolder::log(const std::string& line) {
  if (writes()) log_ << line << std::endl;
}

}  // namespace spillway::app
