#include "trainer/run/run_folder.h"

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

#include "base/error.h"
#include "base/json.h"
#include "data/files/file.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/events/lines_backward.h"
#include "trainer/events/scalars.h"
#include "trainer/node/host.h"
#include "trainer/node/log_line.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& path) { return read_whole(path).value_or(""); }

// Takes the lock of a run folder. Returns nothing if another process holds the lock. The lock is tried a few
// times, because a process that calls run_owner() holds it for an instant only, and that must not make a run fail.
std::optional<FileLock> take_lock(int descriptor, const fs::path& file) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  std::optional<FileLock> lock = FileLock::take(descriptor, file);
  for (int attempt = 1; !lock && attempt < 5; ++attempt) {
    std::this_thread::sleep_for(kPause);
    lock = FileLock::take(descriptor, file);
  }
  return lock;
}

// Opens metrics.jsonl for writing, and creates the file if it does not exist.
data::File open_metrics_file(const fs::path& run) {
  const fs::path file = run / "metrics.jsonl";
  std::error_code unseen;
  return fs::exists(file, unseen) ? data::File::open_to_write(file) : data::File::create(file);
}

// Returns `line`, a JSON object, with those members of `added` that it lacks. Returns an empty text if `line` has all of them.
std::string with_members(const std::string& line, const std::string& added) {
  const nlohmann::ordered_json has = parse_ordered_json(line), members = parse_ordered_json(added);
  nlohmann::ordered_json more = nlohmann::ordered_json::object();
  for (const auto& [key, value] : members.items()) {
    if (!has.contains(key)) more[key] = value;
  }
  return more.empty() ? "" : line.substr(0, line.rfind('}')) + "," + more.dump().substr(1);
}

}  // namespace

std::optional<std::string> run_owner(const fs::path& run) {
  const int descriptor = ::open((run / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  const bool held = !FileLock::take(descriptor, run / "lock", FileLock::Kind::look);
  ::close(descriptor);
  if (!held) return {};
  return FileLock::holder(run / "lock");
}

void tidy_finished(const fs::path& run) try {
  const RunFolder lock(run);
  remove_rests(run);
} catch (const Error&) {  // the error is ignored: the folder is in use or read-only, and the run is complete anyway
}

RunFolder::RunFolder(fs::path path, bool writes) : path_(std::move(path)) {
  if (!writes) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error)
    throw Error(ErrorCode::usage, fmt::format("[run folder] cannot create the folder of --out, {}: {}", path_.string(), error.message()));
  const fs::path file = path_ / "lock";
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (descriptor_ < 0) throw Error(ErrorCode::usage, fmt::format("[run folder] cannot open {}: {}", file.string(), std::strerror(errno)));
  try {
    lock_ = take_lock(descriptor_, file);
    if (!lock_) {
      throw Error(ErrorCode::usage, fmt::format("[run folder] {} is in use by {}: wait until that run ends, or give another --out",
                                                path_.string(), FileLock::holder(file)));
    }
    lock_->sign(descriptor_, file);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
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
      "{} cannot be locked on this filesystem: {}. {} names the host and process that use it instead; if a run died on another host, "
      "remove that file by hand",
      path_.string(), lock_->why_not_flock(), (path_ / "lock.holder").string());
}

std::string RunFolder::config_text() const { return whole_file(path_ / "config.json"); }
void RunFolder::write_config(const std::string& json) {
  if (writes()) data::replace_text(path_ / "config.json", json);
}

void RunFolder::write_contents(const std::string& json) {
  if (writes()) data::replace_text(path_ / "contents.json", json);
}

i64 RunFolder::open_metrics(i64 step) {
  if (!writes()) return 0;
  data::File file = open_metrics_file(path_);
  const LastLine last = last_line_of(file, step, step_of_line);
  file.resize(last.end);
  metrics_.emplace(std::move(file), last.end);
  return last.step;
}

std::vector<std::string> RunFolder::watch(WatchWish wish, i64 step, const std::string& config) {
  if (!writes()) return {};
  watching_.emplace(path_, wish, step, config);
  return watching_->missing();
}

// The TensorBoard event is written before the line of metrics.jsonl. If the process is killed between
// the two, the next start writes the line again. In the opposite order the event would be lost.
std::string RunFolder::metrics_line(const std::string& json) {
  if (!writes()) return "";
  if (watching_) watching_->line(json);
  metrics_->append(json + "\n");
  return said_of_disk();
}

std::string RunFolder::add_validation(i64 step, const std::string& json) {
  if (!writes() || metrics_->waits()) return "";
  data::File file = open_metrics_file(path_);
  const LastLine last = last_line_of(file, step, step_of_line);
  const std::string line = last.step == step && last.end == file.size_bytes() ? with_members(last.text, json) : "";
  if (line.empty()) return "";
  metrics_.emplace(std::move(file), last.begin);  // the completed line, which is longer, overwrites the last line of the file
  metrics_->append(line + "\n");
  if (watching_) watching_->validation(json, line);
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
  if (!waited_) {
    i64 lost = 0;
    for (const GrowingFile* file : files) lost += file->lost();
    return fmt::format(
        "metrics.jsonl and the other files that had to wait are complete again: the disk has room{}",
        lost > 0 ? fmt::format(". TensorBoard's event file lacks {} records for which there was no room in memory", lost) : "");
  }
  return fmt::format("{} {} to wait for room on the disk: {}; new lines are kept in memory until then", fmt::join(waiting, ", "),
                     waiting.size() == 1 ? "has" : "have", why);
}

void RunFolder::sync() {
  if (metrics_) metrics_->sync();
}

void RunFolder::log(std::string_view line) {
  if (!writes()) return;
  log_.clear();  // clears the error of an earlier write, because the disk may have free space again
  log_ << log_line(line) << std::flush;
}

}  // namespace spillway::trainer
