#include "app/commands/rehearse_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "trainer/node/host.h"
#include "trainer/node/scratch_id.h"
#include "trainer/ranks/peers.h"
#include "trainer/run/run_folder.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLockName = "rehearsal", *kScratchMark = "scratch ", *kMadeMark = "made ";

bool on_another_filesystem(const fs::path& folder) {
  struct stat here {
  }, above{};
  return ::stat(folder.c_str(), &here) == 0 && ::stat((folder / "..").c_str(), &above) == 0 && here.st_dev != above.st_dev;
}

// Returns the rehearsal's folder. It lies beside the run folder (with symlinks resolved),
// or inside it if the parent folder is on another filesystem or cannot be written to.
fs::path place_of(const std::string& out) {
  if (out.empty()) return "runs/rehearsal";
  fs::path folder = fs::path(out).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  std::error_code none;
  if (folder.filename() == "." || folder.filename() == ".." || fs::is_symlink(folder, none))
    folder = fs::weakly_canonical(fs::absolute(folder));
  if (fs::is_directory(folder, none) && (on_another_filesystem(folder) || ::access((folder / "..").c_str(), W_OK) != 0))
    return folder / ".rehearsal";
  return folder.string() + ".rehearsal";
}

void add_missing(fs::path folder, std::vector<std::string>& made) {
  std::vector<std::string> missing;
  for (std::error_code none; !folder.empty() && !fs::exists(folder, none); folder = folder.parent_path())
    missing.push_back(folder.string());
  made.insert(made.end(), missing.rbegin(), missing.rend());
}

std::vector<std::string> marked(const std::string& text, const std::string& mark) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(mark)) found.push_back(line.substr(mark.size()));
  }
  return found;
}

// Waits until the run of a dead rehearsal has ended. Such a run dies with its rehearsal, but that may take a while.
void await_end_of(const fs::path& run) {
  constexpr int kPauses = 100;
  for (int pauses = 0;; ++pauses) {
    const std::optional<std::string> owner = run_owner(run);
    if (!owner) return;
    if (pauses == kPauses)
      throw Error(ErrorCode::usage, fmt::format("[rehearse] {} is in use by {}: end that process first", run.string(), *owner));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

RehearsalFolder::RehearsalFolder(const TrainConfig& config) : path_(place_of(config.out)) {
  std::error_code error;
  if (!config.out.empty() && fs::exists(config.out, error) && !fs::is_directory(config.out, error))
    throw Error(ErrorCode::usage, fmt::format("[run folder] cannot create --out {}: it exists and is not a folder", config.out));
  for (const ScratchPath& path : config.nvme) scratch_.push_back(fs::absolute(path.path).string());
  add_missing(fs::absolute(path_).parent_path(), made_);
  for (const std::string& path : scratch_) add_missing(path, made_);
  fs::create_directories(path_, error);
  if (error) throw Error(ErrorCode::usage, fmt::format("[rehearse] cannot create {}: {}", path_.string(), error.message()));
  try {
    take();
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

RehearsalFolder::~RehearsalFolder() {
  clear();
  ::close(descriptor_);
}

void RehearsalFolder::take() {
  const fs::path file = path_ / kLockName;
  if (!fs::exists(file) && !fs::is_empty(path_))
    throw Error(ErrorCode::usage,
                fmt::format("[rehearse] expected {} to be missing or left by a rehearsal, got another folder: remove it", path_.string()));
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) throw Error(ErrorCode::usage, fmt::format("[rehearse] cannot open {}: {}", file.string(), std::strerror(errno)));
  lock_ = FileLock::take(descriptor_, file);
  if (!lock_) {
    const std::string owner = read_whole(file).value_or("");
    throw Error(ErrorCode::usage, fmt::format("[rehearse] {} is in use by another rehearsal, {}: wait for it, or give another --out",
                                              path_.string(), owner.substr(0, owner.find('\n'))));
  }
  clear_up_after_dead();
  write_down();
}

void RehearsalFolder::clear_up_after_dead() {
  const std::string left = read_whole(path_ / kLockName).value_or("");
  for (const std::string& path : marked(left, kScratchMark)) {
    if (std::ranges::find(scratch_, path) == scratch_.end()) scratch_.push_back(path);
  }
  const std::vector<std::string> made = marked(left, kMadeMark);
  made_.insert(made_.begin(), made.begin(), made.end());
  for (const char* run : {kKilledRun, kStraightRun}) await_end_of(path_ / run);
  reclaim_scratch();
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    std::error_code error;
    if (!entry.path().filename().string().starts_with(kLockName)) fs::remove_all(entry.path(), error);
    if (error) throw Error(ErrorCode::io, fmt::format("[rehearse] cannot remove {}: {}", entry.path().string(), error.message()));
  }
}

void RehearsalFolder::write_down() {
  std::string text = fmt::format("host {}, process {}\n", Peers::host_name(), ::getpid());
  for (const std::string& path : scratch_) text += kScratchMark + path + "\n";
  for (const std::string& path : made_) text += kMadeMark + path + "\n";
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw Error(ErrorCode::io, fmt::format("[rehearse] cannot write in {}: {}", path_.string(), std::strerror(errno)));
}

// Removes what the rehearsal's runs left on the scratch paths. Returns what could not be removed.
std::string RehearsalFolder::reclaim_scratch() const {
  std::string left;
  for (const std::string& path : scratch_) {
    for (const char* run : {kKilledRun, kStraightRun}) {
      const ScratchId nobody{.run_id = scratch_run_id(path_ / run), .ranks = 0};
      for (const offload::Orphan& o : nobody.of_others(path)) try {
          offload::remove_orphan(path, o.name);
        } catch (const Error& e) {
          left += fmt::format(" {} ({})", (fs::path(path) / o.name).string(), e.what());
        }
    }
  }
  return left;
}

std::string RehearsalFolder::clear() {
  std::string left = reclaim_scratch();
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) left += fmt::format(" {} ({})", path_.string(), error.message());
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());  // rmdir() removes only empty folders
  return left;
}

}  // namespace spillway::app
