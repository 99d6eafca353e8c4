// Detects Git LFS pointers (https://git-lfs.com, specification 1). A pointer is a few lines of text
// that a working copy holds in place of a large file until `git lfs pull` fetches that file. Readers
// of files that may come from a repository call refuse_lfs_pointer(). Pure function; thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

constexpr i64 kLfsPointerLimitBytes = 1024;  // an upper bound of a pointer's size

/// Throws Error(data) if the file is a Git LFS pointer; the message tells the size of the real file and the command that fetches it. `file`
/// is the file's name, for the message. `text` holds the file's first bytes, or all of them.
void refuse_lfs_pointer(const std::string& file, std::string_view text);

}  // namespace spillway
