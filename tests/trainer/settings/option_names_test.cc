// Checks that names of options are listed only in the option table, and that every name in a message or a mapping is in the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "tests/trainer/support_trainer.h"
#include "trainer/settings/option.h"

namespace spillway::trainer::option_names_test {
namespace {

namespace fs = std::filesystem;

struct Token {
  enum class Kind { literal, word, sign } kind;
  std::string text;  // for a literal: the text between its quotes
  int line;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Returns where the comment that starts at `at` ends, or `at` if none starts there.
size_t end_of_comment(const std::string& code, size_t at, bool python) {
  const bool line = python ? code[at] == '#' : code.compare(at, 2, "//") == 0;
  if (line) return std::min(code.find('\n', at), code.size());
  const std::string opens = python ? "\"\"\"" : "/*", closes = python ? opens : "*/";
  if (code.compare(at, opens.size(), opens) != 0) return at;
  const size_t end = code.find(closes, at + opens.size());
  return end == std::string::npos ? code.size() : end + closes.size();
}

// Returns where the literal that starts at `at` ends, or `at` if none starts there. An apostrophe inside a number starts no literal.
size_t end_of_literal(const std::string& code, size_t at) {
  if ((code[at] != '"' && code[at] != '\'') || (code[at] == '\'' && at > 0 && std::isdigit(static_cast<unsigned char>(code[at - 1]))))
    return at;
  size_t end = at + 1;
  while (end < code.size() && code[end] != code[at]) end += code[end] == '\\' ? 2 : 1;
  return std::min(end + 1, code.size());
}

// Splits C++ or Python into literals, words and other signs, without comments and docstrings.
std::vector<Token> tokens_of(const std::string& code, bool python) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t at = 0; at < code.size();) {
    size_t end = end_of_comment(code, at, python);
    if (end == at && (end = end_of_literal(code, at)) > at) {
      tokens.push_back({Token::Kind::literal, code.substr(at + 1, end - at - 2), line});
    } else if (end == at && is_word(code[at])) {
      while (end < code.size() && is_word(code[end])) ++end;
      tokens.push_back({Token::Kind::word, code.substr(at, end - at), line});
    } else if (end == at) {
      ++end;
      if (!std::isspace(static_cast<unsigned char>(code[at]))) tokens.push_back({Token::Kind::sign, code.substr(at, 1), line});
    }
    line +=
        static_cast<int>(std::count(code.begin() + static_cast<std::ptrdiff_t>(at), code.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at = end;
  }
  return tokens;
}

const std::set<std::string>& option_names() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all;
    for (const Option& option : options()) all.insert(option.name);
    return all;
  }();
  return names;
}

// Returns whether the text is an option's name: "--learning-rate", "learning-rate" or "learning_rate".
bool is_option(std::string text) {
  if (text.starts_with("--")) text = text.substr(2);
  std::ranges::replace(text, '_', '-');
  return option_names().contains(text);
}

bool is_literal(const Token& token) { return token.kind == Token::Kind::literal; }
bool is_sign(const Token& token, const char* signs) {
  return token.kind == Token::Kind::sign && std::string(signs).find(token.text) != std::string::npos;
}

// Returns the lines of brackets that contain only literals, if these are all names of options, or if at least four literals, which are
// the majority, are.
std::vector<int> arrays(const std::vector<Token>& tokens) {
  std::vector<int> lines;
  for (size_t at = 0; at + 1 < tokens.size(); ++at) {
    if (!is_sign(tokens[at], "{[(")) continue;
    size_t end = at + 1;
    int literals = 0, names = 0;
    for (; end < tokens.size() && (is_literal(tokens[end]) || is_sign(tokens[end], ",")); ++end) {
      literals += is_literal(tokens[end]);
      names += is_literal(tokens[end]) && is_option(tokens[end].text);
    }
    const bool closed = end < tokens.size() && is_sign(tokens[end], "}])");
    if (closed && names >= 2 && (names == literals || (names >= 4 && 3 * names >= 2 * literals))) lines.push_back(tokens[at].line);
  }
  return lines;
}

// Returns the lines of statements that contain two or more different flags as whole literals: {{"--device", x}, {"--ranks", y}}.
std::vector<int> flags_of_a_statement(const std::vector<Token>& tokens) {
  std::vector<int> lines;
  std::set<std::string> flags;
  for (const Token& token : tokens) {
    if (is_sign(token, ";")) flags.clear();
    if (!is_literal(token) || !token.text.starts_with("--") || !is_option(token.text)) continue;
    if (flags.insert(token.text).second && flags.size() == 2) lines.push_back(token.line);
  }
  return lines;
}

// Returns the lines of three calls of one function in a row that each name an option: check("betas"); check("eps"); check("alpha").
std::vector<int> calls_in_a_row(const std::vector<Token>& tokens) {
  std::vector<int> lines;
  std::string last;
  int row = 0;
  for (size_t at = 0; at < tokens.size();) {
    size_t end = at;
    bool names = false;
    for (; end < tokens.size() && !is_sign(tokens[end], ";{}"); ++end) names |= is_literal(tokens[end]) && is_option(tokens[end].text);
    const bool call =
        names && end > at + 1 && tokens[at].kind == Token::Kind::word && is_sign(tokens[at + 1], "(") && tokens[at].text != "if";
    if (end > at) {
      row = call && tokens[at].text == last ? row + 1 : call;
      last = call ? tokens[at].text : "";
      if (row == 3) lines.push_back(tokens[at].line);
    }
    at = end + 1;
  }
  return lines;
}

// Returns the lines at which a file compares the name of a third option (or of a later one) with something: key == "model".
std::vector<int> comparisons(const std::vector<Token>& tokens) {
  std::set<std::string> compared;
  for (size_t at = 2; at < tokens.size(); ++at) {
    const bool equal = is_sign(tokens[at - 1], "=") && is_sign(tokens[at - 2], "=!");
    if (equal && is_literal(tokens[at]) && is_option(tokens[at].text) && compared.insert(tokens[at].text).second && compared.size() == 3)
      return {tokens[at].line};
  }
  return {};
}

struct File {
  std::string path, code;
  bool python() const { return path.ends_with(".py"); }
};

std::vector<std::string> lists_in(const File& file) {
  const std::vector<Token> tokens = tokens_of(file.code, file.python());
  std::vector<std::string> found;
  const std::pair<const char*, std::vector<int> (*)(const std::vector<Token>&)> kinds[] = {
      {"an array of", arrays},
      {"several flags in a statement:", flags_of_a_statement},
      {"calls in a row with", calls_in_a_row},
      {"comparisons with", comparisons}};
  for (const auto& [what, find] : kinds) {
    for (const int line : find(tokens)) found.push_back(file.path + ":" + std::to_string(line) + ": " + what + " names of options");
  }
  return found;
}

// Returns the sources below the folders, except for the option table itself.
std::vector<File> sources(const std::vector<std::string>& folders) {
  const fs::path root = SPILLWAY_SOURCE_DIR;
  std::vector<File> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string(), name = entry.path().filename().string();
      if ((extension != ".cc" && extension != ".h" && extension != ".cu" && extension != ".py") || name.starts_with("options_")) continue;
      files.push_back({entry.path().lexically_relative(root).generic_string(), read_whole(entry.path()).value()});
    }
  }
  return files;
}

// Lists the files that may name several options together, with the reasons.
const std::map<std::string, std::string> kMayList = {
    {"optimizer.cc", "maps the settings of DeepSpeed's optimizers to options, which have the same names"},
    {"foreign_flags.cc", "maps flags of other programs to options"},
    {"training_arguments.py", "maps transformers.TrainingArguments to options"},
    {"run_contents.cc", "says how the files of each option that is compared by contents are read"},
    {"trainer.py", "says which arguments may be rows in memory"},
    {"lr_scheduler.py", "takes the arguments of PyTorch's schedulers, some of which have the names of options"},
    {"schedule.cc", "compares the sizes in a schedule's file with the flags for them"},
    {"alternatives.cc", "recommends other values of flags in messages"},
    {"selftest.cc", "writes command lines of the runs that selftest starts"},
    {"selftest_cells.cc", "writes command lines of the runs that selftest starts"},
};

TEST(OptionNames, AreListedOnlyInTheTable) {
  std::set<std::string> listing;
  for (const File& file : sources({"src/app", "src/trainer", "python/spillway"})) {
    const std::string name = fs::path(file.path).filename().string();
    for (const std::string& list : lists_in(file)) {
      listing.insert(name);
      EXPECT_TRUE(kMayList.contains(name)) << list << ": make it an attribute of the table's rows (option.h)";
    }
  }
  for (const auto& [name, why] : kMayList)
    EXPECT_TRUE(listing.contains(name)) << name << " lists no options any more: remove it from kMayList";
}

// Returns what the first group of `form` matches in the source whose path ends with `name`.
std::set<std::string> matches(const std::string& name, const std::string& form) {
  std::set<std::string> found;
  for (const File& file : sources({"src/app", "src/trainer", "python/spillway"})) {
    if (!file.path.ends_with(name)) continue;
    const std::regex pattern(form);
    for (std::sregex_iterator at(file.code.begin(), file.code.end(), pattern), end; at != end; ++at) found.insert(at->str(1));
  }
  return found;
}

// Checks the names of options in mappings from other programs' names. Each mapping is given with the least number of names that `form`
// must find there.
TEST(OptionNames, OfMappingsAreInTheTable) {
  struct Mapping {
    const char *file, *form;
    size_t least;
  };
  const Mapping mappings[] = {{"/deepspeed/keys.cc", R"x(, same, "([a-z0-9-]+)")x", 4},
                              {"/deepspeed/deepspeed.cc", R"x(\bgive\("([a-z0-9-]+)")x", 5},
                              {"/deepspeed/deepspeed.cc", R"x(\btake_offload\(file, "[a-z_]+", "([a-z0-9-]+)")x", 2},
                              {"/deepspeed/optimizer.cc", R"x(\bgive\("([a-z0-9-]+)")x", 3},
                              {"/deepspeed/optimizer.cc", R"x(\btake\("[a-z_]+", "([a-z0-9-]+)")x", 1},
                              {"/foreign_flags.cc", R"x(\{"[a-z0-9-]+", "([a-z0-9-]+)[" ])x", 40},
                              {"/training_arguments.py", R"x(read\.flags\["([a-z0-9_]+)"\])x", 15},
                              {"/training_arguments.py", R"x(\n    "[a-z_]+": "([a-z0-9_]+)",(?=\n))x", 9}};
  for (const auto& [file, form, least] : mappings) {
    const std::set<std::string> names = matches(file, form);
    EXPECT_GE(names.size(), least) << file << ": " << form;
    for (const std::string& name : names) EXPECT_TRUE(is_option(name)) << file << " maps to " << name << ", which is no option";
  }
}

TEST(OptionNames, OfFilesThatAreReadAreThoseComparedByContents) {
  std::set<std::string> read = matches("/run_contents.cc", R"x(\badd\(contents, "([a-z_]+)")x");
  read.insert("data");  // the name "data" is used, but not through its text: its checksums come from the opened data
  const std::vector<std::string> compared = keys_with(Command::train, &Option::compared_by_contents);
  EXPECT_EQ(read, std::set<std::string>(compared.begin(), compared.end()));
}

// Flags in messages that are no options: of the program itself, of cmake, srun and hf, and the common part of several options' names.
const std::set<std::string> kOtherFlags = {
    "help", "version", "preset", "build", "mpi", "cpus-per-task", "ntasks-per-node", "kill-on-bad-exit", "place", "repo-type", "local-dir"};

// Returns the flags in the literals of a source file that no command has.
std::vector<std::string> unknown_flags(const File& file) {
  static const std::regex form(R"((?:^|[^\w-])--([a-z][a-z0-9-]*[a-z0-9]))");
  std::vector<std::string> unknown;
  for (const Token& token : tokens_of(file.code, file.python())) {
    if (!is_literal(token)) continue;
    for (std::sregex_iterator at(token.text.begin(), token.text.end(), form), end; at != end; ++at) {
      if (!option_names().contains(at->str(1)) && !kOtherFlags.contains(at->str(1)))
        unknown.push_back(file.path + ":" + std::to_string(token.line) + ": --" + at->str(1));
    }
  }
  return unknown;
}

TEST(OptionNames, OfMessagesAreInTheTable) {
  for (const File& file : sources({"src", "offload", "optim", "parallel", "python/spillway", "python/module"})) {
    if (file.path.ends_with("/page_style.cc")) continue;  // page_style.cc is a style sheet, whose variables begin with dashes
    for (const std::string& flag : unknown_flags(file)) ADD_FAILURE() << flag << " is no option of any command";
  }
  EXPECT_EQ(unknown_flags({"a.cc", "x = \"[--steps] expected --epoch 1\"; // --no"}), std::vector<std::string>{"a.cc:1: --epoch"});
}

TEST(OptionNames, PlantedListsAreFound) {
  const auto found = [](const std::string& code, bool python = false) { return lists_in({python ? "a.py" : "a.cc", code}).size(); };
  EXPECT_EQ(found("constexpr std::string_view kFirst[] = {\"model\", \"learning-rate\"};"), 1u);
  EXPECT_EQ(found("const std::set<std::string> dull = {\"out\", \"resume\",  // comment\n \"help\", \"quiet\", \"json\"};"), 1u);
  EXPECT_EQ(found("f({{\"--device\", a}, {\"--ranks\", b}});"), 1u);
  EXPECT_EQ(found("check(c, \"betas\", &C::betas);\ncheck(c, \"eps\", &C::eps);\ncheck(c, \"alpha\", &C::alpha);"), 1u);
  EXPECT_EQ(found("if (key == \"model\") a(); if (key == \"data\") b(); if (key != \"adapter\") c();"), 1u);
  EXPECT_EQ(found("names = (\"betas\", 'weight_decay')", true), 1u);
  EXPECT_EQ(
      found("// {\"model\", \"data\"}\nconst char* kTiers[] = {\"device\", \"host\", \"nvme\"}; json = {{\"model\", m}, {\"data\", d}};"),
      0u);
  EXPECT_EQ(found("\"\"\"Names: (\"model\", \"data\").\"\"\"\nx = {\"max_grad_norm\": \"gradient_clipping\"}", true), 0u);
}

}  // namespace
}  // namespace spillway::trainer::option_names_test
