// Tests the help pages made from the option table: they are complete, the page in docs is up to date, and bash accepts the completion
// script.
#include "app/help/pages.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/app/support_app.h"
#include "trainer/run/metrics.h"

namespace spillway::app::pages_test {
namespace {

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

TEST(Pages, DocsHaveTodaysFlags) {
  EXPECT_EQ(run_app({"help", "markdown"}).out, read_whole(std::filesystem::path(SPILLWAY_SOURCE_DIR) / "docs/commands.md"))
      << "build, then run scripts/docs.sh";
}

// Each flag has one heading with its name, so that `commands.md#--lora` leads to it, and the section of each command has all its flags,
// each as a heading or as a link to one.
TEST(Pages, DocsDescribeEachFlagOnce) {
  std::istringstream lines(run_app({"help", "markdown"}).out);
  std::map<std::string, std::string> sections;
  std::set<std::string> headings;
  std::string command;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) command = line.substr(3);
    if (line.starts_with("#### ")) {
      EXPECT_TRUE(headings.insert(line).second) << line;
    }
    sections[command] += line + "\n";
  }
  for (const CommandInfo& one : commands()) {
    const std::string name(one.name);
    EXPECT_TRUE(name == "plan" || name == "slurm" || !has(sections[name], "all flags of [train]")) << name;
    for (const Option* option : options_of(one.command)) {
      const std::string title = option->positional ? option->shown_metavar() : "--" + option->name;
      EXPECT_TRUE(has(sections[name], "#### `" + title + "`") || has(sections[name], "#### `" + name + " " + title + "`") ||
                  has(sections[name], "[`" + title + "`](#") || has(sections[name], "all flags of [train]"))
          << name << " " << title;
    }
  }
  EXPECT_TRUE(headings.contains("#### `--lora`"));
}

TEST(Pages, ManNamesEveryCommandAndFlag) {
  const std::string page = run_app({"help", "man"}).out;
  for (const CommandInfo& one : commands()) {
    for (const Option* option : options_of(one.command)) {
      std::string name = "\\-\\-" + option->name;
      for (size_t at = 4; (at = name.find('-', at)) != std::string::npos; at += 2) name.insert(at, "\\");
      EXPECT_TRUE(option->positional || has(page, name)) << name;
    }
  }
}

// The page of `spillway help markdown` documents every key that a line of metrics.jsonl may have.
TEST(Pages, DocsNameEveryKeyOfMetrics) {
  MetricsRow row;
  row.ranks = 2, row.matmul_share = 0.5, row.validation_loss = 1, row.validation_accuracy = 1, row.wear.days = 3;
  const std::string page = run_app({"help", "markdown"}).out;
  for (const std::string& text : {to_json(row), brief_json(1, {}, 1, 1, 1)}) {
    const auto object = nlohmann::json::parse(text);
    for (const auto& [key, value] : object.items()) EXPECT_TRUE(has(page, "`" + key + "`")) << key;
  }
}

TEST(Pages, ManFitsEightyColumns) {
  std::istringstream lines(run_app({"help", "man"}).out);
  std::string before;
  for (std::string line; std::getline(lines, line); before = line) {
    EXPECT_TRUE(line != ".nf" || before == ".in 0") << "man sets paragraphs seven columns in";
  }
}

// Runs the printed completion script in bash and compares the words that bash offers with the expected ones.
TEST(Pages, BashCompletes) {
  TemporaryFolder folder;
  const std::string script = folder.write("completion", run_app({"help", "completion"}).out), seen = (folder.path() / "seen").string();
  const auto complete = [&](const std::string& words, int at) {
    const std::string run = "bash -c 'set -eu; source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                            "; COMPREPLY=(); _spillway; echo \"${COMPREPLY[@]-}\"' >" + seen;
    EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 0) << words;
    return *read_whole(seen);
  };
  EXPECT_EQ(complete("spillway tr", 1), "train\n");
  EXPECT_EQ(complete("spillway train --learning", 2), "--learning-rate\n");
  EXPECT_TRUE(has(complete("spillway train --lr-schedule \"\"", 3), "cosine"));
  EXPECT_EQ(complete("spillway train --data \"\"", 3), "\n") << "files, by bash";
}

}  // namespace
}  // namespace spillway::app::pages_test
