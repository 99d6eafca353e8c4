// AtomicFolder writes a whole folder atomically: a checkpoint or an export appears under its final name complete or not at all.
// The folder is filled under a temporary name next to its final path (data/files/beside.h). commit() fsyncs every file and sub-folder,
// then renames the folder. If the caller asked for Existing::replace, commit() exchanges an existing folder for the new one in
// one step. Several ranks may write files into path(), but only one rank owns the AtomicFolder. An object is used by one thread.
// Throws Error(io) with path and errno (the message says in words when the disk is full), and the errors of data/files/beside.h.
#pragma once
#include <filesystem>
#include <string_view>

#include "data/files/beside.h"

namespace spillway::data {

class AtomicFolder {
 public:
  /// Creates the temporary folder and missing parent folders. `existing` must be Existing::refuse or Existing::replace.
  AtomicFolder(const std::filesystem::path& final_path, Existing existing) : beside_(final_path, Beside::Kind::folder, existing) {}

  /// Returns the temporary folder, to which files are written until commit().
  /// The destructor removes the folder if commit() was not reached.
  const std::filesystem::path& path() const { return beside_.path(); }
  const std::filesystem::path& final_path() const { return beside_.final_path(); }

  /// Writes and fsyncs one file. `name` is relative to path(). Sub-folders in `name` that do not exist are created.
  void write_text(const std::filesystem::path& name, std::string_view text);

  /// Moves the folder to its final path. Once this returns, the folder and its contents survive a power loss.
  void commit();

 private:
  Beside beside_;
};

}  // namespace spillway::data
