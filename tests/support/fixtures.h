// Where tests find their data.
#pragma once
#include <filesystem>

namespace spillway::test {
inline std::filesystem::path data(const std::filesystem::path& name) { return std::filesystem::path(SPILLWAY_TEST_DATA) / name; }
}  // namespace spillway::test
