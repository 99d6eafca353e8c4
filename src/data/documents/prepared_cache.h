// PreparedCache manages the folder of tokenized files. Each file is identified by its source and by a hash of
// everything that its tokens depend on. Only the process that holds the folder's lock works in the folder;
// others wait. For each source the two most recently used files are kept. An object is used by one thread.
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
  /// in hex, that identifies the tokenized data. `waits` is called with the name of another process while that process holds the lock, and
  /// with "" once this process holds it. Throws Error(io).
  PreparedCache(
      std::filesystem::path folder, std::filesystem::path source, std::string contents,
      const std::function<void(const std::string& holder)>& waits = [](const std::string&) {});
  ~PreparedCache();
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  /// Returns a file whose contents have the hash `contents`, whether it was made from this
  /// source or from another. Returns null if there is no such file or if it is damaged.
  std::unique_ptr<PreparedFile> find() const;
  /// Returns the path at which the caller must write a new file.
  std::filesystem::path file() const;
  /// Opens the new file, which must be complete. Then removes all but the two most recently used files of the source, except
  /// files that a process has open. On a filesystem without flock it is not known which files are open, so none is removed.
  std::unique_ptr<PreparedFile> keep();

 private:
  std::unique_ptr<PreparedFile> open(const std::filesystem::path& file) const;
  void remove_older() const;
  std::filesystem::path folder_, source_, lock_file_;
  std::string contents_, source_id_;
  int descriptor_;  // file descriptor of the lock file
  std::optional<FileLock> turn_;
};

}  // namespace spillway::data
