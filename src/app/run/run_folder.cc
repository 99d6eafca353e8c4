#include "app/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
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
std::optional<FileLock> take_lock(int descriptor, const fs::path& file) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  std::optional<FileLock> lock = FileLock::take(descriptor, file);
  for (int attempt = 1; !lock && attempt < 5; ++attempt) {
    std::this_thread::sleep_for(kPause);
    lock = FileLock::take(descriptor, file);
  }
  return lock;
}

}  // namespace

std::optional<std::string> run_owner(const fs::path& run) {
  const int descriptor = ::open((run / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  const bool held = !FileLock::take(descriptor, run / "lock", FileLock::Kind::look);
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
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw Error(ErrorCode::usage, fmt::format("[run folder] cannot open {}: {}", file.string(), std::strerror(errno)));
  try {
    lock_ = take_lock(descriptor_, file);
    if (!lock_) {
      throw Error(ErrorCode::usage,
                  fmt::format("[run folder] {} is in use by {}wait for it, or give another --out", path_.string(), whole_file(file)));
    }
    const std::string text = owner();
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0)
      throw Error(ErrorCode::io, fmt::format("[run folder] cannot write {}: {}", file.string(), std::strerror(errno)));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  log_.open(path_ / "log.txt", std::ios::app);
}

RunFolder::~RunFolder() {
  try {
    if (metrics_ && !waiting_.empty()) metrics_->write(metrics_bytes_, std::as_bytes(std::span(waiting_)));
  } catch (const Error&) {  // said when it began
  }
  lock_.reset();
  if (writes()) ::close(descriptor_);
}

std::string RunFolder::lock_notice() const {
  if (!lock_ || lock_->why_not_flock().empty()) return "";
  return fmt::format(
      "{} cannot be locked here: {}. {} names host and process instead; a run that died on another host must be told apart by "
      "you: remove that file then",
      path_.string(), lock_->why_not_flock(), (path_ / "lock.holder").string());
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
  metrics_.emplace(data::File::open_to_write(file));
  metrics_bytes_ = static_cast<i64>(kept.size());
  waiting_.clear();
  return last;
}

std::string RunFolder::metrics_line(const std::string& json) {
  if (!writes()) return "";
  const bool waited = !waiting_.empty();
  waiting_ += json + "\n";
  try {
    metrics_->write(metrics_bytes_, std::as_bytes(std::span(waiting_)));
  } catch (const Error& e) {
    return waited ? "" : fmt::format("metrics.jsonl has to wait: {}; its lines are kept in memory until there is room", e.what());
  }
  metrics_bytes_ += static_cast<i64>(waiting_.size());
  waiting_.clear();
  return waited ? "metrics.jsonl is whole again: there was room for the lines that waited" : "";
}

void RunFolder::sync() {
  if (metrics_) metrics_->sync();
}

void RunFolder::log(std::string_view line) {
  if (!writes()) return;
  log_.clear();  // the disk may have room again
  std::array<char, 32> now{};
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  std::strftime(now.data(), now.size(), "%F %T", localtime_r(&seconds, &local));
  log_ << now.data() << "  " << line << std::endl;
}

}  // namespace spillway::app
