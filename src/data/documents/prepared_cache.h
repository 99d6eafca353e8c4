// The folder that prepared data are kept in, by the source that they were made of and all that their tokens depend on. Who has the turn is
// alone in it; others wait. Of a source the two files used last stay. One thread.
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
  /// Makes the folder where it is not there, waits for the turn, and removes what a process that died left half made. `contents`: a hash,
  /// in hex. `waits` is called while another process has the turn, with its name, and with "" when the turn is ours. Error(io).
  PreparedCache(
      std::filesystem::path folder, std::filesystem::path source, std::string contents,
      const std::function<void(const std::string& holder)>& waits = [](const std::string&) {});
  ~PreparedCache();
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  /// What was made of the same contents, here or of another source. Null: nothing, or it is damaged.
  std::unique_ptr<PreparedFile> find() const;
  /// Where a new one is to be written.
  std::filesystem::path file() const;
  /// The new one, which is whole. Files of the source beyond the two used last go, unless someone has them open. Where the filesystem has
  /// no flock, which would tell, none goes.
  std::unique_ptr<PreparedFile> keep();

 private:
  std::unique_ptr<PreparedFile> open(const std::filesystem::path& file) const;
  void remove_older() const;
  std::filesystem::path folder_, source_, lock_file_;
  std::string contents_, source_id_;
  int descriptor_;  // of the lock's file
  std::optional<FileLock> turn_;
};

}  // namespace spillway::data
