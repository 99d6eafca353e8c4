// Finds the tests' data, which lie in the source tree. Tests of GPUs read none, because they also run where the tree is not built.
#pragma once
#include <filesystem>

namespace spillway::test {
inline std::filesystem::path data(const std::filesystem::path& name) { return std::filesystem::path(SPILLWAY_TEST_DATA) / name; }
}  // namespace spillway::test
