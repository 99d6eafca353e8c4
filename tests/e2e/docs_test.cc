// Runs every command that README and docs show: the blocks marked `sh`, page by page, in a folder with a text, a tiny trained run and the
// program. A block that is not run says why in a comment before it. python/tests/test_docs.py and tests/consumer run blocks marked `python`
// and `cpp`.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/e2e/support_program.h"

namespace spillway::test::docs_test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = SPILLWAY_SOURCE_DIR;

std::vector<fs::path> pages() {
  std::vector<fs::path> all = {kSource / "README.md", kSource / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kSource / "docs")) {
    if (entry.path().extension() == ".md") all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> lines_of(const fs::path& page) {
  std::ifstream in(page);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct Block {
  std::string commands, why_not;
};
std::vector<Block> blocks_of(const fs::path& page) {
  const std::vector<std::string> lines = lines_of(page);
  std::vector<Block> blocks;
  for (size_t at = 0; at < lines.size(); ++at) {
    if (lines[at] != "```sh") continue;
    Block& block = blocks.emplace_back();
    const std::string before = at > 0 ? lines[at - 1] : "", mark = "<!-- not run: ";
    if (before.starts_with(mark)) block.why_not = before.substr(mark.size());
    for (++at; at < lines.size() && lines[at] != "```"; ++at) block.commands += lines[at] + "\n";
  }
  return blocks;
}

TEST(DocsRelease, EveryCommandRuns) {
  int run = 0;
  for (const fs::path& page : pages()) {
    SCOPED_TRACE(page.filename());
    Workplace at;
    fs::create_directories(at / "build/release");
    fs::create_directories(at / "build/data");
    fs::create_directories(at / "build/scratch");
    fs::create_symlink(SPILLWAY_PROGRAM, at / "build/release/spillway");
    for (const char* name : {"src", "offload", "optim", "parallel", "CMakeLists.txt", "examples", "tests"})
      fs::create_symlink(kSource / name, at / name);
    at.write_text("build/data/kjv.txt", 60000);
    for (const Block& block : blocks_of(page)) {
      if (!block.why_not.empty()) continue;
      at.write("block.sh", "set -eu\nexport OMP_NUM_THREADS=1 XDG_CACHE_HOME=$PWD/cache\n" + block.commands);
      const int status = std::system(("cd '" + at.path().string() + "' && bash block.sh >said.txt 2>&1").c_str());
      EXPECT_EQ(WEXITSTATUS(status), 0) << block.commands << at.read("said.txt");
      ++run;
    }
  }
  EXPECT_GE(run, 15);
}

// Shows that every block is marked, so that none escapes the test above or those of Python (docs and README) and C++ (docs).
TEST(Docs, BlocksAreRunOrOutput) {
  for (const fs::path& page : pages()) {
    for (const std::string& line : lines_of(page)) {
      const size_t fence = line.find("```");
      if (fence == line.npos || line.find_first_not_of(' ') < fence) continue;
      const bool in_docs = page.parent_path().filename() == "docs", in_readme = page.filename() == "README.md";
      const bool code = (line == "```python" && (in_docs || in_readme)) || (line == "```cpp" && in_docs);
      EXPECT_TRUE(line == "```sh" || line == "```" || code) << page << ": " << line;
    }
  }
}

TEST(Docs, EachPageOpensWithACommandAndReadmeIsShort) {
  EXPECT_LE(lines_of(kSource / "README.md").size(), 150u);
  for (const fs::path& page : pages()) {
    const std::vector<std::string> lines = lines_of(page);
    ASSERT_GT(lines.size(), 4u) << page;
    EXPECT_TRUE(lines[0].starts_with("# ")) << page;
    if (page.parent_path().filename() == "docs") {
      EXPECT_TRUE(lines[2] == "```sh" || (lines[2].starts_with("<!-- not run: ") && lines[3] == "```sh")) << page;
    }
  }
}

// Shows that relative links lead to files that exist, and that README links to every page.
TEST(Docs, LinksLeadSomewhere) {
  std::string readme;
  for (const fs::path& page : pages()) {
    for (const std::string& line : lines_of(page)) {
      if (page.filename() == "README.md") readme += line + "\n";
      for (size_t at = 0; (at = line.find("](", at)) != std::string::npos; ++at) {
        const std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
        if (target.starts_with("http")) continue;
        EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << ": " << target;
      }
    }
  }
  for (const fs::path& page : pages()) {
    if (page.parent_path().filename() == "docs") {
      EXPECT_TRUE(mentions(readme, "docs/" + page.filename().string())) << page;
    }
  }
}

}  // namespace
}  // namespace spillway::test::docs_test
