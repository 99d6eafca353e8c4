// A new file or folder that is made beside its final place, as `<final>.partial-<pid>`, and takes that place when it is whole. Death at any
// instant leaves what was there before. What its maker has not seen there when it began is never replaced: another program's file that
// comes to be meanwhile stays, and so does what we made, under a name that the error tells. While it is being made its maker holds a lock
// (flock) on it, by which the rest of a process that died is told from the work of one that lives: making a new one removes such rests of
// the same final place. One thread. Errors: Error(io) with path and errno; Error(usage) as said.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "data/file.h"

namespace spillway::data {

/// What may be at the final place already.
enum class Existing {
  refuse,     // nothing: whatever is there is an Error(usage)
  replace,    // what was there when we began
  overwrite,  // anything: of several who write one file at once the last one wins. For files that only this program writes. Not for folders
};

class Beside {
 public:
  enum class Kind { file, folder };

  /// Makes the empty file or folder; for a folder also those above that are missing.
  Beside(const std::filesystem::path& final_path, Kind kind, Existing existing);
  /// Removes it unless put_in_place() was reached.
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  const std::filesystem::path& path() const { return beside_; }
  const std::filesystem::path& final_path() const { return final_; }

  /// The contents are on stable storage already; on return the name is as well. Error(io) when something came to be at the final place.
  void put_in_place();

  /// Removes what was left beside things in `parent`, and says what. Call it where nobody can be writing there, because the run folder's
  /// lock is held: then it needs no flock.
  static std::vector<std::filesystem::path> remove_left(const std::filesystem::path& parent);

 private:
  /// Which file or folder stands at a name, whatever is in it.
  struct Identity {
    dev_t device;
    ino_t number;
    bool operator==(const Identity&) const = default;
  };
  static std::optional<Identity> identity_of(const std::filesystem::path& path);
  void make();
  bool take_free_place();
  void exchange();
  [[noreturn]] void keep_for_the_user();

  const std::filesystem::path final_;
  const Kind kind_;
  const Existing existing_;
  std::optional<Identity> before_;
  std::filesystem::path beside_;
  int lock_ = -1;  // a descriptor
  bool done_ = false;
};

/// A new file that is written beside its place.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& final_path, Existing existing);
  File& file() { return file_; }
  const std::filesystem::path& final_path() const { return beside_.final_path(); }
  /// Syncs it and puts it in place.
  void commit();

 private:
  Beside beside_;
  File file_;
};

}  // namespace spillway::data
