// What the standard library says of a path that it cannot look at, list or change, as an Error. Whoever has nothing better to say lets the
// library's exception go up to where exceptions end, and it is told in this way. Pure.
#pragma once
#include <filesystem>

#include "base/error.h"

namespace spillway {

/// Error(data) where the path is at fault: a folder on the way that may not be entered, a name that is too long, links that lead in a
/// circle, a part that is no folder or is not there. Error(io) otherwise. Names the path, and what to do.
Error error_of(const std::filesystem::filesystem_error& error);

}  // namespace spillway
