#include "app/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/node/host.h"
#include "app/node/log_line.h"
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

// Empty where there is none yet. What cannot be read is not taken for empty, since what is kept of it replaces it.
std::string metrics_before(const fs::path& file) {
  if (const auto text = read_whole(file)) return *text;
  std::error_code error;
  if (!fs::exists(file, error) && !error) return "";
  throw Error(ErrorCode::io,
              fmt::format("[run folder] cannot read {}, to which the run would add: look at its permissions and the disk, or "
                          "move it away",
                          file.string()));
}

constexpr const char* kReplaced[] = {"config.json.", "metrics.jsonl.", "metrics.csv.", "plan.json.", "timeline.json."};

// What a process left that was killed while it replaced one of the folder's files (data::replace_text).
void remove_half_replaced(const fs::path& run) {
  std::vector<fs::path> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::ranges::any_of(kReplaced, [&](const char* file) { return name.starts_with(file); });
    if (ours && name.ends_with(".new")) left.push_back(entry.path());
  }
  for (const fs::path& file : left) fs::remove(file, ignored);
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
      const std::string beside = FileLock::holder(file);
      throw Error(ErrorCode::usage, fmt::format("[run folder] {} is in use by {}wait for it, or give another --out", path_.string(),
                                                beside.empty() ? whole_file(file) : beside + "\n"));
    }
    const std::string text = owner();
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0)
      throw Error(ErrorCode::io, fmt::format("[run folder] cannot write {}: {}", file.string(), std::strerror(errno)));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  remove_half_replaced(path_);
  log_.open(path_ / "log.txt", std::ios::app);
}

RunFolder::~RunFolder() {
  watching_.reset();
  metrics_.reset();
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
  std::istringstream old(metrics_before(file));
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
  metrics_.emplace(data::File::open_to_write(file), static_cast<i64>(kept.size()));
  return last;
}

std::vector<std::string> RunFolder::watch(WatchWish wish, i64 step, const std::string& config) {
  if (!writes()) return {};
  watching_.emplace(path_, wish, step, config);
  return watching_->missing();
}

// The event first: a line that a kill came before is written again by the next start, an event is not.
std::string RunFolder::metrics_line(const std::string& json) {
  if (!writes()) return "";
  if (watching_) watching_->line(json);
  metrics_->append(json + "\n");
  return said_of_disk();
}

std::string RunFolder::add_validation(i64 step, const std::string& json) {
  if (!writes() || metrics_->waits()) return "";
  const fs::path file = path_ / "metrics.jsonl";
  std::string text = metrics_before(file);
  const size_t begin = text.size() > 1 ? text.rfind('\n', text.size() - 2) + 1 : 0;  // rfind's npos + 1 is 0
  nlohmann::ordered_json last = nlohmann::ordered_json::parse(text.substr(begin), nullptr, false);
  if (!last.is_object() || last.value("step", i64{0}) != step) return "";
  last.update(nlohmann::ordered_json::parse(json));
  text = text.substr(0, begin) + last.dump() + "\n";
  data::replace_text(file, text);
  metrics_.emplace(data::File::open_to_write(file), static_cast<i64>(text.size()));
  if (watching_) watching_->validation(json);
  return said_of_disk();
}

std::string RunFolder::sample(i64 step, const std::string& text) {
  if (!watching_) return "";
  watching_->text(step, "sample", text);
  return said_of_disk();
}

std::string RunFolder::histogram(i64 step, const std::string& parameter, const Histogram& histogram) {
  if (!watching_) return "";
  watching_->histogram(step, "weights/" + parameter, histogram);
  return said_of_disk();
}

std::string RunFolder::said_of_disk() {
  std::vector<const GrowingFile*> files = watching_ ? watching_->files() : std::vector<const GrowingFile*>();
  files.insert(files.begin(), &*metrics_);
  std::vector<std::string> waiting;
  std::string why;
  for (const GrowingFile* file : files) {
    if (!file->waits()) continue;
    waiting.push_back(file->name());
    if (why.empty()) why = file->why();
  }
  if (waited_ == !waiting.empty()) return "";
  waited_ = !waiting.empty();
  if (!waited_) return "metrics.jsonl is whole again, and what else had to wait: there was room for it";
  return fmt::format("{} {} to wait: {}; its lines are kept in memory until there is room", fmt::join(waiting, ", "),
                     waiting.size() == 1 ? "has" : "have", why);
}

void RunFolder::sync() {
  if (metrics_) metrics_->sync();
}

void RunFolder::log(std::string_view line) {
  if (!writes()) return;
  log_.clear();  // the disk may have room again
  log_ << log_line(line) << std::flush;
}

}  // namespace spillway::app
