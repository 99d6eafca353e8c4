// The owner file of a scratch folder: one line of fixed length that says whose folder it is, locked (FileLock) while its owner lives. A
// folder without one is nobody's business here. Functions keep no state.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/types.h"

namespace spillway::offload {

constexpr const char* kOwnerFile = "owner";

struct Owner {
  std::string run;   // its id
  std::string text;  // "run=0a1b host=n1 pid=17 started=2026-01-31T12:00:00Z"
  bool old = false;  // as programs wrote it that knew no magic: its folder is a run's only when nothing else is in it but a store
};

/// What the owner file behind `descriptor` says; nothing unless it begins as ours do, or is to the letter as ours were, and names a run.
std::optional<Owner> read_owner(int descriptor);

/// Writes this process over what is there, in one write, so that death leaves one owner or the other. Errors: Error(io).
void write_owner(int descriptor, const std::filesystem::path& file, const std::string& run_id);

/// Throws Error(usage) when what is open as `what` belongs to another user, may be written by others, or is a file with a second name:
/// somebody may have put it there.
void check_private(int descriptor, const std::filesystem::path& what);

}  // namespace spillway::offload
