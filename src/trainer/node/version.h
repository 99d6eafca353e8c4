// Defines the version number of this program.
#pragma once

namespace spillway::trainer {

constexpr const char* kVersion = "0.1.0";

}  // namespace spillway::trainer
