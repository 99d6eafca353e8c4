// A folder that appears whole or not at all: a checkpoint, an export. It is filled beside its final place as `<final>.partial-<pid>`, every
// file and folder in it is fsynced, then it is renamed and the parent is fsynced; death at any instant leaves what was there before. An old
// folder at the final place is exchanged for the new one in one step. Several ranks may write files into path(); one owns the AtomicFolder.
// One thread. Errors: Error(io) with path and errno; a full disk is said so in words.
#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

namespace spillway::data {

class AtomicFolder {
 public:
  /// Makes the partial folder, and the parents it needs.
  explicit AtomicFolder(const std::filesystem::path& final_path);
  /// Removes the partial folder unless commit() was reached.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to put the files until commit().
  const std::filesystem::path& path() const { return partial_; }
  const std::filesystem::path& final_path() const { return final_; }

  /// Writes and fsyncs one file; `name` may name subfolders, which are made.
  void write_text(const std::filesystem::path& name, std::string_view text);

  /// After it returns the folder is at its final place and survives a power loss.
  void commit();

  /// Removes the partial folders in `parent`, and says which. Call it where nobody can be writing there (the run folder's lock is held): a
  /// process number in a name says nothing, containers give the same ones again.
  static std::vector<std::filesystem::path> remove_stale(const std::filesystem::path& parent);

 private:
  std::filesystem::path final_, partial_;
  bool committed_ = false;
};

}  // namespace spillway::data
