// Kills commands that write, at instants spread over their whole run. Afterwards the output is the old one or the complete new one, and
// leftovers of a killed command are gone after the next call. Another test shows that a run with a million steps in its metrics starts
// without reading them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/support_program.h"

namespace spillway::test::killed_writers_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kKills = 200;

/// Maps the files at and below a path to their bytes. The map is empty if nothing is there.
using Tree = std::map<std::string, std::string>;

struct SoakKilledWriters : testing::Test {
  Workplace at;
  std::mt19937 random{7};

  SoakKilledWriters() { at.write_text("text.txt", 1'000'000); }

  Tree tree(const std::string& name) const {
    Tree found;
    if (fs::is_regular_file(at / name)) found[""] = at.read(name);
    if (!fs::is_directory(at / name)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(at / name)) {
      if (entry.is_regular_file()) found[fs::relative(entry.path(), at / name)] = at.read(fs::relative(entry.path(), at.path()));
    }
    return found;
  }

  /// Returns the names of everything in the workplace.
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(at.path())) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  std::chrono::microseconds time_of(const Args& args) const {
    const auto begin = Clock::now();
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, 0) << f.err;
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  }

  /// Starts the command and kills it at a random instant within 1.1 times `whole`. Returns true if the command was still running.
  bool kill_within(const Args& args, std::chrono::microseconds whole) {
    const auto begin = Clock::now();
    const std::chrono::microseconds after(random() % static_cast<unsigned>(whole.count() * 11 / 10));
    const Finished f = at.spillway_until(
        args, [&] { return Clock::now() - begin >= after; }, SIGKILL);
    EXPECT_TRUE(f.status == 0 || f.status == 128 + SIGKILL) << f.err;
    return f.status != 0;
  }

  /// Kills the command, whose `args` make it write the same bytes to `out` each time. A command that replaces its earlier output is
  /// also killed while it does so. `is_whole` tells whether an output is complete, for commands whose bytes differ from time to
  /// time.
  void kill(const Args& args, const std::string& out, bool replaces = false, std::function<bool(const Tree&)> is_whole = {}) {
    const auto whole = time_of(args);
    const Tree want = tree(out);
    ASSERT_FALSE(want.empty()) << out;
    if (!is_whole) is_whole = [&](const Tree& got) { return got == want; };
    const std::vector<std::string> with_output = entries();
    int killed = 0;
    for (int i = 0; i < kKills; ++i) {
      const bool over_it = replaces && i % 2 == 1;
      if (!over_it) fs::remove_all(at / out);
      if (over_it && !fs::exists(at / out)) {
        ASSERT_EQ(at.spillway(args).status, 0);
      }
      killed += kill_within(args, whole);
      const Tree got = tree(out);
      ASSERT_TRUE(is_whole(got) || (!over_it && got.empty())) << out << " holds " << got.size() << " files after kill " << i;
    }
    fs::remove_all(at / out);
    EXPECT_EQ(at.spillway(args).status, 0);
    EXPECT_TRUE(is_whole(tree(out))) << out;
    EXPECT_EQ(entries(), with_output);
    std::cout << out << ": " << killed << " of " << kKills << " killed, a whole run takes " << whole.count() / 1000 << " ms\n";
    EXPECT_GE(killed, kKills / 3);
  }

  Args training(const std::string& out, const Args& more = {}) const {
    Args args = {"train", "--model", "gpt2-tiny", "--data",    "text.txt", "--sequence-length", "32",   "--steps",
                 "3",     "--out",   out,         "--threads", "1",        "--device-memory",   "64MiB"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

const std::string kData = SPILLWAY_TEST_DATA;

TEST_F(SoakKilledWriters, Export) {
  for (const char* format : {"hf", "gguf", "onnx"}) kill({"export", kData + "/gpt2-tiny", "--format", format, "--out", format}, format);
}

TEST_F(SoakKilledWriters, ExportInShards) {
  kill({"export", kData + "/gpt2-tiny", "--max-shard-size", "64KiB", "--dtype", "bf16", "--out", "shards"}, "shards");
}

TEST_F(SoakKilledWriters, Import) { kill({"import", kData + "/imports/gpt2.bin", "--out", "imported"}, "imported"); }

TEST_F(SoakKilledWriters, Tokenize) {
  kill({"tokenize", "--data", "text.txt", "--tokenizer", "bytes", "--out", "tokens.bin"}, "tokens.bin", true);
  kill({"tokenize", "--data", "text.txt", "--train-vocab", "300", "--out", "vocabulary"}, "vocabulary");
}

TEST_F(SoakKilledWriters, Report) {
  ASSERT_EQ(at.spillway(training("run")).status, 0);
  // The report page says when it was made, so its bytes differ from time to time.
  kill({"report", "run", "--out", "report.html"}, "report.html", true,
       [](const Tree& got) { return got.size() == 1 && got.begin()->second.ends_with("</html>\n"); });
}

// Kills a run from its first byte on, while it writes the token cache, its folder and its checkpoint. The same
// command then comes to the same numbers, and leaves the same files as a run that was never killed.
TEST_F(SoakKilledWriters, ARunAndItsDataCache) {
  ASSERT_EQ(at.spillway({"tokenize", "--data", "text.txt", "--train-vocab", "300", "--out", "vocabulary"}).status, 0);
  auto config = nlohmann::json::parse(std::ifstream(kData + "/gpt2-tiny/config.json"));
  config["vocab_size"] = 300;
  fs::create_directory(at / "model");
  at.write("model/config.json", config.dump());
  const Args tokenized = {"--from-scratch", "--tokenizer", "vocabulary", "--checkpoint-every", "1", "--tensorboard", "off"};
  const auto whole = time_of(with(training("straight", tokenized), "--model", "model"));
  const auto numbers = numbers_of(at.metrics("straight"));
  const auto names = [&](const std::string& folder) {
    std::vector<std::string> all;
    for (const auto& [name, bytes] : tree(folder)) all.push_back(name);
    return all;
  };
  const auto of_run = names("straight"), of_cache = names("data-cache");
  ASSERT_FALSE(of_cache.empty());
  const std::string weights = at.read("straight/checkpoints/step-00000003/model.safetensors");
  ASSERT_FALSE(weights.empty());
  int killed = 0, runs = 0;
  for (; killed < kKills; ++runs) {
    fs::remove_all(at / "data-cache");
    while (kill_within(with(training("run", tokenized), "--model", "model"), whole)) ++killed;
    EXPECT_EQ(numbers_of(at.metrics("run")), numbers);
    EXPECT_TRUE(at.read("run/checkpoints/step-00000003/model.safetensors") == weights);
    // A kill between the last save and the removal of an older checkpoint leaves one more checkpoint, which is complete.
    std::vector<std::string> left = names("run");
    const auto more = std::erase_if(left, [](const std::string& name) { return name.starts_with("checkpoints/step-00000001/"); });
    EXPECT_EQ(left, of_run);
    EXPECT_TRUE(more == 0 || names("run/checkpoints/step-00000001") == names("run/checkpoints/step-00000003"));
    EXPECT_EQ(names("data-cache"), of_cache);
    fs::remove_all(at / "run");
  }
  std::cout << killed << " kills over " << runs << " runs of " << whole.count() / 1000 << " ms\n";
}

TEST_F(SoakKilledWriters, AStartBehindAMillionStepsReadsTheirEnd) {
  ASSERT_EQ(at.spillway(training("run")).status, 0);
  const auto lines = at.metrics("run");
  ASSERT_EQ(lines.size(), 3u);
  const auto most_kb = [] {
    rusage used{};
    ::getrusage(RUSAGE_CHILDREN, &used);
    return used.ru_maxrss;
  };
  ASSERT_EQ(at.spillway(with(training("run"), "--steps", "4")).status, 0);
  const long before_kb = most_kb();
  const auto four = at.metrics("run");
  {
    std::ofstream out(at / "run/metrics.jsonl", std::ios::binary);
    for (int i = 0; i < 1'000'000; ++i) out << four[0] << '\n';
    for (size_t i = 1; i < 4; ++i) out << four[i] << '\n';
  }
  const auto took = time_of(with(training("run"), "--steps", "5"));
  std::cout << "a start, a step and a save behind " << fs::file_size(at / "run/metrics.jsonl") / 1000000 << " MB took "
            << took.count() / 1000 << " ms and " << (most_kb() - before_kb) / 1024 << " MiB more than behind 4 lines\n";
  EXPECT_LT(most_kb() - before_kb, 100'000);
  std::ifstream in(at / "run/metrics.jsonl", std::ios::binary);
  in.seekg(-static_cast<long>(4 * four[0].size()), std::ios::end);
  std::string line, last;
  while (std::getline(in, line)) last = line;
  EXPECT_TRUE(mentions(last, "\"step\":5,")) << last;
}

}  // namespace
}  // namespace spillway::test::killed_writers_test
