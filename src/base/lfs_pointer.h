// Pointers of Git LFS (https://git-lfs.com, specification 1): a few lines of text that lie in a working copy in place of a large file until
// `git lfs pull` fetches it. For whoever opens a file that may come from a repository. Pure functions: thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

constexpr i64 kLfsPointerLimitBytes = 1024;  // a pointer is shorter

/// `file`: its name, for the message. `text`: the file's first bytes, or all of them. Throws Error(data) if it is a pointer: what it stands
/// for, and the command that fetches it.
void refuse_lfs_pointer(const std::string& file, std::string_view text);

}  // namespace spillway
