// Finds the tests' data: in the folder they were built with, or in that of SPILLWAY_TEST_DATA.
#pragma once
#include <cstdlib>
#include <filesystem>

namespace spillway::test {
inline std::filesystem::path data(const std::filesystem::path& name) {
  const char* elsewhere = std::getenv("SPILLWAY_TEST_DATA");
  return std::filesystem::path(elsewhere ? elsewhere : SPILLWAY_TEST_DATA) / name;
}
}  // namespace spillway::test
