// Checks the project rules that a machine can check: who prints, how long a file is, how a header begins, what may be skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "tests/laws/support_sources.h"

namespace spillway::laws::house_law_test {
namespace {

using Law = std::function<std::vector<std::string>(const Source&)>;

std::vector<std::string> violations_of(const Law& law, const std::vector<Source>& sources) {
  std::vector<std::string> all;
  for (const Source& source : sources) {
    for (std::string& violation : law(source)) all.push_back(std::move(violation));
  }
  return all;
}

// Finds calls of functions that write to the terminal or end the process, either free functions or in
// std. A call of a member function with such a name, as in x.abort(), is allowed.
std::vector<std::string> prints_or_exits(const Source& source) {
  static const std::regex form(
      R"((^|[^\w.>:]|std::|fmt::|[^:]::)(printf|fprintf|puts|putchar|fputs|perror|exit|_exit|quick_exit|abort|terminate|print|println)\s*\()"
      R"(|std::(cout|cerr|clog)\b)");
  static const std::regex declaration(R"(\bvoid\s+[\w:]+\s*\()");  // matches the declaration of a function
  // io_uring.cc may end the process: the kernel may still write into memory, and nothing can wait for the kernel any more.
  const bool may_terminate = source.path == "offload/io_uring.cc";
  std::vector<std::string> violations;
  int number = 0;
  // Searching for these words is a hundred times faster than the regular expression. Every match of the expression contains one of them.
  static const std::vector<std::string> words = {"print", "put", "perror", "exit", "abort", "terminate", "std::c"};
  for (const std::string& whole : lines_of(code_only(source.text))) {
    ++number;
    if (std::ranges::none_of(words, [&](const std::string& word) { return whole.find(word) != whole.npos; })) continue;
    const std::string line = std::regex_replace(whole, declaration, "");
    std::smatch match;
    if (!std::regex_search(line, match, form) || (may_terminate && match[2] == "terminate")) continue;
    violations.push_back(at(source, number, "prints or exits: " + whole));
  }
  return violations;
}

std::vector<std::string> too_long(const Source& source) {
  const auto lines = lines_of(source.text).size();
  if (lines <= 500) return {};
  return {at(source, 501, "500 lines are a wall, this has " + std::to_string(lines))};
}

std::vector<std::string> unfinished(const Source& source) {
  static const std::vector<std::string> marks = {std::string("TO") + "DO", std::string("FIX") + "ME"};
  std::vector<std::string> violations;
  int number = 0;
  for (const std::string& line : lines_of(source.text)) {
    ++number;
    for (const std::string& mark : marks) {
      if (line.find(mark) != std::string::npos) violations.push_back(at(source, number, "unfinished: " + line));
    }
  }
  return violations;
}

// A header begins with a comment that says what it is. Then comes #pragma once, except in *_inl.h, which Highway includes once per
// instruction set.
std::vector<std::string> no_banner(const Source& source) {
  if (!source.path.ends_with(".h")) return {};
  const auto lines = lines_of(source.text);
  const auto code = std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return !line.starts_with("//"); });
  if (code == lines.begin()) return {at(source, 1, "a header begins with a comment that says what it is")};
  if (source.path.ends_with("_inl.h")) return {};
  if (code == lines.end() || *code != "#pragma once") return {at(source, 1, "#pragma once follows the first comment")};
  return {};
}

std::vector<std::string> badly_named(const Source& source) {
  static const std::regex form(R"([a-z0-9_]+(/[a-z0-9_-]+)*\.(h|cc|cu))");
  // cublasLt.h of the emulated GPU replaces NVIDIA's header and so must have its name.
  if (std::regex_match(source.path, form) || source.path == "tests/emulated_cuda/cublasLt.h") return {};
  return {at(source, 1, "file names are snake_case")};
}

// Several test files are compiled as one unit, so each test file puts its names into a separate namespace.
std::vector<std::string> in_a_shared_namespace(const Source& source) {
  if (!source.path.ends_with("_test.cc")) return {};
  const std::string wanted = "::" + std::filesystem::path(source.path).stem().string() + " {";
  for (const std::string& line : lines_of(source.text)) {
    if (line.starts_with("namespace spillway") && line.ends_with(wanted)) return {};
  }
  return {at(source, 1, "expected a namespace spillway…" + wanted)};
}

// Tests run in parallel, and in several builds at once, so a temporary name that is always the same would clash.
std::vector<std::string> temporary_of_a_fixed_name(const Source& source) {
  static const std::regex form(R"(\b(mkdtemp|mkstemp|TempDir|temp_directory_path)\s*\()");
  // temporary_folder.h makes the temporary folders. ranks.cc names a rendezvous of ranks on two nodes after its run.
  if (source.path == "tests/support/temporary_folder.h" || source.path == "tests/sockets/ranks.cc") return {};
  if (!source.path.starts_with("tests/")) return {};
  std::vector<std::string> violations;
  int number = 0;
  for (const std::string& line : lines_of(code_only(source.text))) {
    ++number;
    if (std::regex_search(line, form)) violations.push_back(at(source, number, "expected test::TemporaryFolder, got " + line));
  }
  return violations;
}

// The archive of the check on a GPU (scripts/bundle.sh --check) has the tests of GPUs and no data.
std::vector<std::string> reads_data_on_a_gpu(const Source& source) {
  static const std::regex form(R"(\btest::data\(|support/(fixtures|reference_file)\.h")");
  std::vector<std::string> violations;
  if (!source.path.ends_with("_cuda_test.cc")) return violations;
  int number = 0;
  for (const std::string& line : lines_of(source.text)) {
    ++number;
    if (std::regex_search(line, form)) violations.push_back(at(source, number, "expected a test of GPUs without files, got " + line));
  }
  return violations;
}

// Some operations have one place in the source, which sets limits and reports errors (DESIGN's rule for hostile files and bad days). Calls
// elsewhere would have neither.
std::vector<std::string> past_a_door(const Source& source) {
  struct Door {
    std::regex form;
    std::vector<std::string> places;
    std::string instead;
  };
  static const std::vector<Door> doors = {
      {std::regex(R"(\b[jJ]son::(parse|accept)\s*\()"), {"src/base/json.cc"}, "base/json.h, which bounds depth, numbers and memory"},
      {std::regex(R"(std::(jthread|async)\b|std::thread\s*\(|\bpthread_create\s*\()"),
       {"src/base/thread.h"},
       "base/thread.h, which tells a refusal"},
      {std::regex(R"(\b(rename|renameat|renameat2)\s*\()"),
       // The last four of these files move the program's own files: checkpoints and stores that
       // are set aside, rendezvous files, and the lock file of a dead process.
       {"src/data/files/beside.cc", "src/trainer/checkpoints/checkpoint.cc", "offload/store_aside.cc", "parallel/sockets/meeting_place.cc",
        "src/base/file_lock.cc"},
       "data/files/beside.h, which replaces nothing that came to be meanwhile"}};
  // every match of the expressions contains one of these words
  static const std::vector<std::string> words = {"parse", "accept", "thread", "async", "rename"};
  std::vector<std::string> violations;
  if (source.path.starts_with("tests/") || source.path.starts_with("examples/") || source.path.starts_with("bench/")) return violations;
  int number = 0;
  for (const std::string& line : lines_of(code_only(source.text))) {
    ++number;
    // skips most lines, since a search by regular expressions is slow
    if (std::ranges::none_of(words, [&](const std::string& word) { return line.find(word) != line.npos; })) continue;
    for (const Door& door : doors) {
      const bool at_home = std::ranges::find(door.places, source.path) != door.places.end();
      if (!at_home && std::regex_search(line, door.form))
        violations.push_back(at(source, number, "expected " + door.instead + ", got " + line));
    }
  }
  return violations;
}

// Besides the program itself, two files may end a process: a child that could not become another program, and a process in which a thread
// waits for a GPU that will never answer.
bool may_exit(const Source& source) {
  return source.path.starts_with("src/app/") || source.path == "src/trainer/node/own_program.cc" ||
         source.path == "src/trainer/ranks/leave.cc";
}

TEST(HouseLaw, NobodyPrintsOrExitsButTheApp) {
  auto sources = room_sources();
  std::erase_if(sources, may_exit);
  const auto violations = violations_of(prints_or_exits, sources);
  EXPECT_TRUE(violations.empty()) << joined(violations);
}

struct Case {
  const char* name;
  Law law;
  Source good, bad;
  friend void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }
};

// EveryFile shows that each law holds in the whole repository, accepts a good file and finds a planted bad one.
class EveryFile : public ::testing::TestWithParam<Case> {};

TEST_P(EveryFile, KeepsTheLaw) {
  const auto violations = violations_of(GetParam().law, all_sources());
  EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST_P(EveryFile, PlantedFileDoesNot) {
  EXPECT_TRUE(GetParam().law(GetParam().good).empty());
  EXPECT_EQ(GetParam().law(GetParam().bad).size(), 1u);
}

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "int x;\n";
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    HouseLaw, EveryFile,
    ::testing::Values(
        Case{"HasAtMost500Lines", too_long, {"src/a/b.cc", many_lines(500)}, {"src/a/b.cc", many_lines(501)}},
        Case{"IsFinished", unfinished, {"src/a/b.cc", "// done\n"}, {"src/a/b.cc", std::string("// TO") + "DO: later\n"}},
        Case{"StartsWithItsBannerIfAHeader", no_banner, {"src/a/b.h", "// What it is.\n#pragma once\n"}, {"src/a/b.h", "#pragma once\n"}},
        Case{"HasANamespaceOfItsOwnIfATest",
             in_a_shared_namespace,
             {"tests/a/b_test.cc", "namespace spillway::a::b_test {\n"},
             {"tests/a/b_test.cc", "namespace spillway::a {\n"}},
        Case{"HasTemporaryFoldersOfItsOwnIfATest",
             temporary_of_a_fixed_name,
             {"tests/a/b_test.cc", "const test::TemporaryFolder folder;\n"},
             {"tests/a/b_test.cc", "const auto folder = testing::TempDir() + \"x\";\n"}},
        Case{"ReadsNoDataIfATestOfGpus",
             reads_data_on_a_gpu,
             {"tests/a/b_cuda_test.cc", "#include \"tests/support/gpu.h\"\n"},
             {"tests/a/b_cuda_test.cc", "#include \"tests/support/fixtures.h\"\n"}},
        Case{"GoesThroughTheDoors",
             past_a_door,
             {"src/a/b.cc", "x = parse_json(text);\n"},
             {"src/a/b.cc", "x = nlohmann::json::parse(text);\n"}},
        Case{"IsNamedInSnakeCase", badly_named, {"src/a/b_c.cc", ""}, {"src/a/BadName.cc", ""}}),
    [](const auto& tested) { return tested.param.name; });

TEST(HouseLaw, FindsPlantedPrinting) {
  const std::vector<std::string> printing = {"std::cout << 1;",  "  printf(\"x\");",   "std::printf(\"x\");",    "exit(1);",
                                             "std::abort();",    "if (x) ::_exit(2);", "fmt::print(\"{}\", 1);", "std::cerr << x;",
                                             "std::terminate();"};
  for (const std::string& line : printing) EXPECT_EQ(prints_or_exits({"src/nn/planted.cc", line}).size(), 1u) << line;
  const std::vector<std::string> quiet = {"// std::cout << 1;",          "communicator->abort(rank, what);",
                                          "peers.abort(rank);",          "virtual void abort(const std::string& what) noexcept = 0;",
                                          "std::snprintf(b, n, \"x\");", "throw Error(code, \"printf(\");",
                                          "/* exit(1)\n exit(2) */",     "x = R\"(exit(1))\";",
                                          "i64 n = 1'000; // exit(1)"};
  for (const std::string& line : quiet) EXPECT_TRUE(prints_or_exits({"src/nn/planted.cc", line}).empty()) << line;
}

// Reads the page that each library's folder opens with, by the library's name.
std::map<std::string, std::string> pages_of(const std::map<std::string, Room>& known) {
  std::map<std::string, std::string> pages;
  for (const auto& [name, room] : known) {
    std::ifstream file(std::filesystem::path(SPILLWAY_SOURCE_DIR) / room.folder / "README.md");
    pages[name] = {std::istreambuf_iterator<char>(file), {}};
  }
  return pages;
}

// A library is cut by an idea. Its page says the idea in one sentence and names the headers
// that other libraries may include; the others are its own. All of it fits on a screen.
std::vector<std::string> page_violations(const std::map<std::string, std::string>& pages, const std::vector<Source>& sources,
                                         const std::map<std::string, Room>& known) {
  std::vector<std::string> violations;
  for (const auto& [name, text] : pages) {
    const std::vector<std::string> lines = lines_of(text);
    const bool says = lines.size() >= 3 && lines[0] == "# " + name && lines[1].empty() && lines[2].ends_with('.');
    if (!says) violations.push_back(known.at(name).folder + "/README.md: expected \"# " + name + "\" and a sentence on the library's idea");
    if (lines.size() > 40) violations.push_back(known.at(name).folder + "/README.md: expected at most 40 lines, a screen");
  }
  for (const Source& source : sources) {
    for (const Include& include : includes_of(source)) {
      const size_t slash = include.header.rfind('/');
      if (!include.quoted || slash == std::string::npos || source.path.starts_with("tests/")) continue;
      const std::string folder = include.header.substr(0, slash), file = include.header.substr(slash + 1);
      const auto page = pages.find(folder);
      if (page == pages.end() || source.path.substr(0, source.path.rfind('/')) == known.at(folder).folder) continue;
      if (page->second.find("`" + file + "`") == std::string::npos)
        violations.push_back(
            at(source, include.line, "\"" + include.header + "\" is not among the headers that the page of " + folder + " names"));
    }
  }
  return violations;
}

TEST(HouseLaw, EachLibraryHasAPageWithItsIdeaAndItsHeaders) {
  const auto known = rooms();
  const auto violations = page_violations(pages_of(known), all_sources(), known);
  EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(HouseLaw, FindsAPlantedPrivateHeader) {
  const std::map<std::string, Room> known = {{"nn", {"src/nn", {}}}, {"ops", {"src/ops", {}}}};
  const std::vector<Source> planted = {{"src/nn/a.cc", "#include \"ops/open.h\"\n#include \"ops/own.h\"\n#include \"nn/b.h\"\n"}};
  const std::map<std::string, std::string> pages = {{"nn", "Layers.\n"}, {"ops", "# ops\n\nDifferentiable ops.\n\nOthers: `open.h`.\n"}};
  EXPECT_EQ(page_violations(pages, planted, known),
            (std::vector<std::string>{"src/nn/README.md: expected \"# nn\" and a sentence on the library's idea",
                                      "src/nn/a.cc:2: \"ops/own.h\" is not among the headers that the page of ops names"}));
}

TEST(HouseLaw, ReadsTheWholeHouse) {
  EXPECT_GE(all_sources().size(), 60u) << "the walk over the repository finds too little for the laws to mean anything";
  EXPECT_GE(rooms().size(), 33u);
}

// Shows that tests/expected_skips.txt has comments first, then sorted lines LIBRARY/Suite.Test without repetitions.
TEST(HouseLaw, ExpectedSkipsAreWellFormed) {
  std::ifstream in(std::string(SPILLWAY_SOURCE_DIR) + "/tests/expected_skips.txt");
  ASSERT_TRUE(in);
  static const std::regex form(R"([a-z0-9]+/\w+(/\w+)?\.\w+(/\w+)?)");
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    EXPECT_TRUE(std::regex_match(line, form)) << line;
    EXPECT_LT(last, line) << "not sorted, or twice";
    last = line;
  }
}

// Tests that compare a GPU's kernels with the CPU's ("twins") are skipped without a GPU, so they must be listed in expected_skips.txt.
TEST(HouseLaw, TwinsAreExpectedToSkip) {
  std::ifstream in(std::string(SPILLWAY_SOURCE_DIR) + "/tests/expected_skips.txt");
  const std::string listed(std::istreambuf_iterator<char>(in), {});
  static const std::regex test(R"(TEST_[FP]\((\w+Twins), (\w+)\))");
  int twins = 0;
  for (const Source& source : all_sources()) {
    for (std::sregex_iterator at(source.text.begin(), source.text.end(), test), end; at != end; ++at, ++twins) {
      const std::string line = "/" + at->str(1) + "." + at->str(2) + "\n";
      EXPECT_NE(listed.find(line), std::string::npos) << source.path << line << " is to be in tests/expected_skips.txt";
    }
  }
  EXPECT_GT(twins, 60);
}

}  // namespace
}  // namespace spillway::laws::house_law_test
