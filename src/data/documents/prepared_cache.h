// PreparedCache manages the folder of tokenized files, which are keyed by their source and by everything that their tokens depend on. Only
// the process that holds the folder's lock works in it; others wait. For each source the two most recently used files are kept. An object
// is used by one thread.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "data/documents/prepared_file.h"

namespace spillway::data {

class PreparedCache {
 public:
  /// Creates the folder if it is missing, waits for its lock, and removes partial files that dead processes left. `contents` is the hash,
  /// in hex, that identifies the tokenized data. While another process holds the lock, `waits` is called with its name; once the lock is
  /// ours, it is called with "". Throws Error(io).
  PreparedCache(
      std::filesystem::path folder, std::filesystem::path source, std::string contents,
      const std::function<void(const std::string& holder)>& waits = [](const std::string&) {});
  ~PreparedCache();
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  /// Returns a file with the same contents hash, whether it was made from this source or another. Returns null if there is none or it is
  /// damaged.
  std::unique_ptr<PreparedFile> find() const;
  /// Returns the path to which a new file is to be written.
  std::filesystem::path file() const;
  /// Opens the new file, which must be complete. Removes the source's files beyond the two most recently used, unless a process has them
  /// open. On a filesystem without flock that cannot be told, so none is removed.
  std::unique_ptr<PreparedFile> keep();

 private:
  std::unique_ptr<PreparedFile> open(const std::filesystem::path& file) const;
  void remove_older() const;
  std::filesystem::path folder_, source_, lock_file_;
  std::string contents_, source_id_;
  int descriptor_;  // descriptor of the lock file
  std::optional<FileLock> turn_;
};

}  // namespace spillway::data
