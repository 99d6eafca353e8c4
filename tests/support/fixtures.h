// Where tests find their data: where they were built, or where SPILLWAY_TEST_DATA says.
#pragma once
#include <cstdlib>
#include <filesystem>

namespace spillway::test {
inline std::filesystem::path data(const std::filesystem::path& name) {
  const char* elsewhere = std::getenv("SPILLWAY_TEST_DATA");
  return std::filesystem::path(elsewhere ? elsewhere : SPILLWAY_TEST_DATA) / name;
}
}  // namespace spillway::test
