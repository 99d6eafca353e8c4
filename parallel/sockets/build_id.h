// Which build of the program this is: what the linker wrote into it, in hexadecimal digits; empty where it wrote nothing. Thread-safe.
#pragma once
#include <string>

namespace spillway::parallel {

std::string build_id();

}  // namespace spillway::parallel
