#include "data/files/atomic_folder.h"

#include <system_error>

#include "data/files/file.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry); entry.increment(error)) {
    if (entry->is_regular_file() || (entry->is_directory() && !entry->is_symlink())) sync_path(entry->path());
  }
  if (error) throw_io("list the folder", folder, error.value());
  sync_path(folder);
}

}  // namespace

void AtomicFolder::write_text(const fs::path& name, std::string_view text) {
  const fs::path file = path() / name;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) throw_io("create the folder", file.parent_path(), error.value());
  data::write_text(file, text);
}

void AtomicFolder::commit() {
  sync_tree(path());
  beside_.put_in_place();
}

}  // namespace spillway::data
