// Returns the build ID that the linker wrote into this program or library, in hexadecimal digits, or "" if it wrote none. Thread-safe.
#pragma once
#include <string>

namespace spillway::parallel {

std::string build_id();

}  // namespace spillway::parallel
