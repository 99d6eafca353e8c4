#include "data/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "data/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".partial-";

// "runs/x/" and "runs/x" are one place.
fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_io("create the folder", path, error.value());
}

// Makes the folders that are missing above a new one, and their names durable.
void make_durable_folders(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  if (path != parent_of(path)) make_durable_folders(parent_of(path));
  fs::create_directory(path, error);  // another rank may have been quicker: no error
  if (error) throw_io("create the folder", path, error.value());
  sync_path(parent_of(path));
}

void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry); entry.increment(error)) {
    if (entry->is_regular_file() || (entry->is_directory() && !entry->is_symlink())) sync_path(entry->path());
  }
  if (error) throw_io("list the folder", folder, error.value());
  sync_path(folder);
}

bool is_partial(const fs::path& path) {
  const std::string name = path.filename().string();
  const size_t mark = name.rfind(kMark);
  if (mark == name.npos || mark == 0) return false;
  const std::string digits = name.substr(mark + kMark.size());
  return !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& final_path) : final_(without_trailing_slash(final_path)), partial_(final_) {
  partial_ += fmt::format("{}{}", kMark, ::getpid());
  std::error_code error;
  fs::remove_all(partial_, error);  // of a dead process that bore our number: containers give the same one at each start
  if (error) throw_io("remove the old folder", partial_, error.value());
  make_durable_folders(parent_of(final_));
  if (!fs::create_directory(partial_, error)) throw_io("create the folder", partial_, error ? error.value() : EEXIST);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void AtomicFolder::write_text(const fs::path& name, std::string_view text) {
  const fs::path path = partial_ / name;
  make_folders(path.parent_path());
  data::write_text(path, text);
}

void AtomicFolder::commit() {
  sync_tree(partial_);
  bool replaced = false;
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, final_.c_str(), RENAME_NOREPLACE) != 0) {
    // Some filesystems know neither flag; plain rename does there, and refuses to replace a folder that is not empty.
    const int error = errno;
    if (error == EEXIST) {
      replaced = ::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0;
      if (!replaced) throw_io("exchange the old folder for the new one at", final_, errno);
    } else if ((error != EINVAL && error != ENOSYS) || ::rename(partial_.c_str(), final_.c_str()) != 0) {
      throw_io("rename the finished folder to", final_, errno);
    }
  }
  committed_ = true;
  sync_path(parent_of(final_));
  if (replaced) {
    std::error_code ignored;  // now the old one; what cannot be removed is stale and found later
    fs::remove_all(partial_, ignored);
  }
}

std::vector<fs::path> AtomicFolder::remove_stale(const fs::path& parent) {
  std::vector<fs::path> stale;
  std::error_code error;
  for (auto entry = fs::directory_iterator(parent, error); !error && entry != fs::end(entry); entry.increment(error)) {
    if (is_partial(entry->path()) && entry->is_directory() && !entry->is_symlink()) stale.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw_io("list the folder", parent, error.value());
  for (const fs::path& path : stale) {
    fs::remove_all(path, error);
    if (error) throw_io("remove the stale folder", path, error.value());
  }
  return stale;
}

}  // namespace spillway::data
