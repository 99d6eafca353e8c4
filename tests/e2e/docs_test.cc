// Runs every command that README and docs show: the blocks marked `sh`, page by page, in a folder with a text, a tiny trained run and the
// program. A block that is not run says why in a comment before it. python/tests/test_docs.py and tests/consumer run blocks marked `python`
// and `cpp`.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
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

// The first screen of README says what, for whom, what is not proven, how to install and how to fine-tune, in the words people search for.
TEST(Docs, ReadmesFirstScreenSaysWhatForWhomAndHow) {
  const std::vector<std::string> lines = lines_of(kSource / "README.md");
  EXPECT_LE(lines.size(), 150u);
  std::string screen;
  for (size_t at = 0; at < 30 && at < lines.size(); ++at) screen += lines[at] + "\n";
  for (const char* words :
       {"not run on a real one yet", "for people with", "offload", "SFT", "LoRA", "QLoRA", "mixed precision", "gradient checkpointing",
        "## Install", "scripts/quickstart.sh", "spillway plan ", "spillway train ", "spillway export ", "Requirements", "License"}) {
    EXPECT_TRUE(mentions(screen, words)) << words;
  }
}

TEST(Docs, EachPageOpensWithACommand) {
  for (const fs::path& page : pages()) {
    const std::vector<std::string> lines = lines_of(page);
    ASSERT_GT(lines.size(), 4u) << page;
    EXPECT_TRUE(lines[0].starts_with("# ")) << page;
    if (page.parent_path().filename() == "docs") {
      EXPECT_TRUE(lines[2] == "```sh" || (lines[2].starts_with("<!-- not run: ") && lines[3] == "```sh")) << page;
    }
  }
}

// Returns the anchors that GitHub and the site (scripts/site/hooks.py) give to a page's headings.
std::set<std::string> anchors_of(const fs::path& page) {
  std::set<std::string> anchors;
  bool in_block = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) in_block = !in_block;
    if (in_block || !line.starts_with("#")) continue;
    std::string anchor;
    for (const unsigned char c : line.substr(line.find(' ') + 1)) {
      if (std::isalnum(c) || c == '-' || c == '_') anchor += static_cast<char>(std::tolower(c));
      if (c == ' ') anchor += '-';
    }
    EXPECT_TRUE(anchors.insert(anchor).second) << page << " has two headings " << line;
  }
  return anchors;
}

// Shows that docs/first-run.md explains what the program prints: the lines that it shows begin like lines of the run, but for those of the
// plan, which depends on how fast this machine is just now.
TEST(DocsRelease, TheFirstRunPrintsWhatItsPageShows) {
  const fs::path page = kSource / "docs/first-run.md";
  Workplace at;
  fs::create_directories(at / "build/release");
  fs::create_directories(at / "build/data");
  fs::create_directories(at / "build/scratch");
  fs::create_symlink(SPILLWAY_PROGRAM, at / "build/release/spillway");
  at.write_text("build/data/kjv.txt", 60000);
  at.write("block.sh", "export XDG_CACHE_HOME=$PWD/cache\n" + blocks_of(page).at(0).commands);
  ASSERT_EQ(WEXITSTATUS(std::system(("cd '" + at.path().string() + "' && bash block.sh >said.txt 2>&1").c_str())), 0)
      << at.read("said.txt");
  const std::string said = "\n" + at.read("said.txt");
  std::string block, missing;  // the fence that opens the block in which the current line is; empty outside of a block
  int shown = 0, lacking = 0;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      block = block.empty() ? line : "";
      continue;
    }
    // Numbers, and the tiers that data is stored in, differ from machine to machine, so only the beginnings of lines are compared.
    const std::string begins =
        // "\xe2" is the first byte of an ellipsis
        line.substr(0, std::min(line.find("  ", line.find_first_not_of(' ')), line.find_first_of("0123456789/\"\xe2")));
    if (block != "```" || begins.find_first_not_of(' ') == begins.npos) continue;
    ++shown;
    if (!mentions(said, "\n" + begins)) missing += line + "\n", ++lacking;
  }
  EXPECT_GE(shown, 40);
  EXPECT_LE(lacking, shown / 4) << missing;
}

// Shows that every test, script and source that the pages name exists.
TEST(Docs, NamedFilesAreThere) {
  for (const fs::path& page : pages()) {
    for (const std::string& line : lines_of(page)) {
      for (size_t at = 0; (at = line.find('`', at)) != line.npos; ++at) {
        const std::string name = line.substr(at + 1, line.find('`', at + 1) - at - 1);
        const bool ours =
            name.starts_with("tests/") || name.starts_with("python/tests/") || name.starts_with("scripts/") || name.starts_with("src/");
        if (!ours || name.find_first_of(" *{}NX") != name.npos) continue;
        EXPECT_TRUE(fs::exists(kSource / name)) << page << ": " << name;
      }
    }
  }
}

// Shows that relative links lead to files and headings that exist, and that README links to every page.
TEST(Docs, LinksLeadSomewhere) {
  std::string readme;
  for (const fs::path& page : pages()) {
    bool in_block = false;
    for (const std::string& line : lines_of(page)) {
      if (page.filename() == "README.md") readme += line + "\n";
      if (line.starts_with("```")) in_block = !in_block;
      if (in_block) continue;
      for (size_t at = 0; (at = line.find("](", at)) != std::string::npos; ++at) {
        const std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
        if (target.starts_with("http")) continue;
        const size_t hash = target.find('#');
        const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
        EXPECT_TRUE(fs::exists(file)) << page << ": " << target;
        if (hash != target.npos && fs::exists(file)) {
          EXPECT_TRUE(anchors_of(file).contains(target.substr(hash + 1))) << page << ": " << target;
        }
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
