// The owner file of a scratch folder is one line of fixed length that names the run that owns the folder. The owner holds a lock on it
// (FileLock) while it lives. A folder without an owner file is never touched. The functions keep no state.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/types.h"

namespace spillway::offload {

constexpr const char* kOwnerFile = "owner";

struct Owner {
  std::string run;   // id of the run
  std::string text;  // the whole line, such as "run=0a1b host=n1 pid=17 started=2026-01-31T12:00:00Z"
  // True if an older program wrote the line, which then lacks the magic word. In that case the
  // folder is treated as a run's folder only if it holds nothing but a store.
  bool old = false;
};

/// Reads the owner file behind `descriptor`. Returns nothing unless the file names a run and either begins with the magic word or matches
/// the older format exactly.
std::optional<Owner> read_owner(int descriptor);

/// Overwrites the file with this process as the owner, in one write, so that a crash leaves either the old owner or the new one. Errors:
/// Error(io).
void write_owner(int descriptor, const std::filesystem::path& file, const std::string& run_id);

/// Throws Error(usage) if the open file or folder `what` belongs to another user, may be written by others, or
/// is a file with a second hard link. In all three cases somebody else may have put it there.
void check_private(int descriptor, const std::filesystem::path& what);

}  // namespace spillway::offload
