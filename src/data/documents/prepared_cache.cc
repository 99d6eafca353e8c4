#include "data/documents/prepared_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "data/documents/content_hash.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 2;  // number of files that are kept for each source
// The number of digits of the source's hash in a file name. If two sources have
// equal digits, they share the limit of kKept files; nothing else goes wrong.
constexpr size_t kIdDigits = 16;

std::string id_of(const fs::path& source) {
  std::error_code ignored;
  return hash_of_fields({fs::weakly_canonical(fs::absolute(source, ignored), ignored).string()}).substr(0, kIdDigits);
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& begin, const std::string& end) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored); !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) files.push_back(at->path());
  }
  return files;
}

// Returns true if a process has the file open. This is known because each PreparedFile holds a lock on its file.
bool is_open_somewhere(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return true;
  bool open = true;
  if (const auto lock = FileLock::take(descriptor, file)) open = !lock->why_not_flock().empty();
  ::close(descriptor);
  return open;
}

}  // namespace

PreparedCache::PreparedCache(fs::path folder, fs::path source, std::string contents, const std::function<void(const std::string&)>& waits)
    : folder_(std::move(folder)),
      source_(std::move(source)),
      lock_file_(folder_ / "lock"),
      contents_(std::move(contents)),
      source_id_(id_of(source_)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_io("make the folder", folder_, error.value());
  descriptor_ = ::open(lock_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_io("make", lock_file_, errno);
  while (!(turn_ = FileLock::take(descriptor_, lock_file_))) {
    waits(FileLock::holder(lock_file_));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  waits("");
  turn_->sign(descriptor_, lock_file_);
  // removes partial files; no live writer is disturbed, because only the holder of the cache's lock creates files in the folder
  Beside::remove_left(folder_);
}

PreparedCache::~PreparedCache() {
  turn_.reset();
  ::close(descriptor_);
}

std::unique_ptr<PreparedFile> PreparedCache::open(const fs::path& file) const {
  auto opened = std::make_unique<PreparedFile>(file, source_.string());
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
  return opened;
}

std::unique_ptr<PreparedFile> PreparedCache::find() const {
  for (const fs::path& file : files_in(folder_, "", "-" + contents_ + ".tokens")) {
    try {
      return open(file);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::data) throw;
    }
  }
  return nullptr;
}

fs::path PreparedCache::file() const { return folder_ / fmt::format("{}-{}.tokens", source_id_, contents_); }

std::unique_ptr<PreparedFile> PreparedCache::keep() {
  auto kept = open(file());
  remove_older();
  return kept;
}

void PreparedCache::remove_older() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::path& file : files_in(folder_, source_id_ + "-", ".tokens")) {
    const auto used = fs::last_write_time(file, error);
    if (!error) files.emplace_back(used, file);
  }
  std::ranges::sort(files, std::greater());
  for (size_t i = kKept; i < files.size(); ++i) {
    if (!is_open_somewhere(files[i].second)) fs::remove(files[i].second, error);
  }
}

}  // namespace spillway::data
