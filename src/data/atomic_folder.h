// A folder that appears whole or not at all: a checkpoint, an export. It is filled beside its final place (data/beside.h), every file and
// folder in it is fsynced, then it takes its place. An old folder at the final place is exchanged for the new one in one step, where that
// is wanted. Several ranks may write files into path(); one owns the AtomicFolder. One thread. Errors: Error(io) with path and errno; a
// full disk is said so in words; those of data/beside.h.
#pragma once
#include <filesystem>
#include <string_view>

#include "data/beside.h"

namespace spillway::data {

class AtomicFolder {
 public:
  /// Makes the partial folder, and the parents it needs. `existing`: refuse or replace.
  AtomicFolder(const std::filesystem::path& final_path, Existing existing) : beside_(final_path, Beside::Kind::folder, existing) {}

  /// Where to put the files until commit(). It goes when commit() is not reached.
  const std::filesystem::path& path() const { return beside_.path(); }
  const std::filesystem::path& final_path() const { return beside_.final_path(); }

  /// Writes and fsyncs one file; `name` may name subfolders, which are made.
  void write_text(const std::filesystem::path& name, std::string_view text);

  /// After it returns the folder is at its final place and survives a power loss.
  void commit();

 private:
  Beside beside_;
};

}  // namespace spillway::data
