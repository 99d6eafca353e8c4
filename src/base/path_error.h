// Turns the standard library's filesystem exceptions into an Error with a readable message. Code that has no better message lets such an
// exception pass to the top level, where it is converted and reported. Pure function.
#pragma once
#include <filesystem>

#include "base/error.h"

namespace spillway {

/// Returns Error(data) when the path itself is at fault: a folder on the way is not accessible, a name is too long, symbolic links form a
/// circle, a part is not a folder or does not exist. Returns Error(io) for every other cause. The message names the path and what to do.
Error error_of(const std::filesystem::filesystem_error& error);

}  // namespace spillway
