// Checks packaging/Containerfile and packaging/spillway.def as far as possible without a container engine: the files that they copy and run
// exist, and the build inside gets every source that this build has read. The recipe's own test is run by bundle_test.cc.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/e2e/support_program.h"

namespace spillway::test::containers_test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = SPILLWAY_SOURCE_DIR;

/// Returns the instructions of a Containerfile without comments, with continued lines joined.
std::vector<std::string> instructions_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> all;
  bool goes_on = false;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with("#")) continue;
    const bool more = line.ends_with("\\");
    if (more) line.pop_back();
    if (goes_on) {
      all.back() += line;
    } else {
      all.push_back(line);
    }
    goes_on = more;
  }
  return all;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Returns the paths that the instructions copy from the source tree.
std::set<std::string> copied(const std::vector<std::string>& instructions) {
  std::set<std::string> paths;
  for (const std::string& line : instructions) {
    const std::vector<std::string> words = words_of(line);
    if (words[0] != "COPY" || words[1].starts_with("--from")) continue;
    paths.insert(words.begin() + 1, words.end() - 1);
  }
  return paths;
}

bool is_in(const std::string& path, const std::set<std::string>& paths) {
  for (const std::string& each : paths) {
    if (path == each || path.starts_with(each + "/")) return true;
  }
  return false;
}

TEST(Containers, TheContainerfileCopiesAllThatItsBuildReads) {
  const std::vector<std::string> instructions = instructions_of(kSource / "packaging/Containerfile");
  const std::set<std::string> paths = copied(instructions);
  ASSERT_GT(paths.size(), 8u);
  for (const std::string& path : paths) EXPECT_TRUE(fs::exists(kSource / path)) << path;
  // compile_commands.json lists the sources that this build read to make the program and the library.
  std::ifstream in(fs::path(SPILLWAY_BINARY_DIR) / "compile_commands.json");
  int sources = 0;
  const std::string mark = "\"file\": \"" + kSource.string() + "/";
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    std::string path = line.substr(at + mark.size());
    path = path.substr(0, path.find('"'));
    if (path.starts_with("tests/") || path.starts_with("bench/") || path.starts_with("python/") || path.starts_with("build/")) continue;
    EXPECT_TRUE(is_in(path, paths)) << path << " is compiled and not copied";
    ++sources;
  }
  EXPECT_GT(sources, 20);
  for (const char* path : {"cmake/deb.cmake", "scripts/deb.sh", "scripts/setup.sh", "CMakeLists.txt", "LICENSE", "docs", "README.md"})
    EXPECT_TRUE(is_in(path, paths)) << path;
}

TEST(Containers, TheImageRunsTheProgramAsAUserOfItsOwn) {
  bool user = false, entry = false;
  for (const std::string& line : instructions_of(kSource / "packaging/Containerfile")) {
    if (line.starts_with("FROM")) user = entry = false;
    if (line.starts_with("USER")) user = line == "USER spillway";
    if (line.starts_with("ENTRYPOINT")) entry = line == "ENTRYPOINT [\"spillway\"]";
    if (!line.starts_with("RUN")) continue;
    for (const std::string& word : words_of(line)) {
      if (word.starts_with("scripts/")) {
        EXPECT_TRUE(fs::exists(kSource / word)) << word;
      }
    }
  }
  EXPECT_TRUE(user && entry);
}

}  // namespace
}  // namespace spillway::test::containers_test
