// Finds the tests' data, which lie in the source tree. Tests of GPUs read none, because they also run where the tree is not built.
#pragma once
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace spillway::test {
inline std::filesystem::path data(const std::filesystem::path& name) { return std::filesystem::path(SPILLWAY_TEST_DATA) / name; }

/// Returns the folders families/NAME of the families' tiny models, sorted by name.
inline std::vector<std::string> family_folders() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(data("families"))) {
    if (entry.is_directory()) all.push_back("families/" + entry.path().filename().string());
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace spillway::test
