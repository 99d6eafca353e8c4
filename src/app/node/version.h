// Defines the version of this program.
#pragma once

namespace spillway::app {

constexpr const char* kVersion = "0.1.0";

}  // namespace spillway::app
