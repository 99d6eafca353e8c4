// Tests generate and evaluate with --ranks, and export of what several ranks wrote, as a user runs them: one process and several give the
// same results, and only the memory of each differs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/types.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::sharded_test {
namespace {

struct Sharded : testing::Test {
  Workplace at;
  Sharded() {
    at.write_text("text.txt", 20000);
    at.write_text("held.txt", 1500);
  }
  void train(const Args& more = {}) const {
    const Finished trained = at.spillway(small_run("run", 3, "64MiB", more));
    ASSERT_EQ(trained.status, 0) << trained.err;
  }
  static Args with(Args args, const Args& more) {
    args.insert(args.end(), {"--device-memory", "64MiB", "--host-memory", "64MiB", "--threads", "1"});
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static Args evaluate(const Args& more) {
    return with({"evaluate", "--model", "run", "--data", "held.txt", "--sequence-length", "16", "--json"}, more);
  }
  static Args generate(const Args& more) {
    return with({"generate", "--model", "run", "--prompt", "the river", "--max-tokens", "16"}, more);
  }
};
using ShardedMore = Sharded;

const Args kOnNvme = {"--ranks", "2", "--zero-stage", "3", "--place-parameters", "nvme", "--nvme", "scratch"};

TEST_F(ShardedMore, OwnRanksSayWhatOneSays) {
  train({"--validation-data", "held.txt"});
  const Finished one = at.spillway(evaluate({})), text = at.spillway(generate({}));
  ASSERT_EQ(one.status + text.status, 0) << one.err << text.err;
  EXPECT_EQ(nlohmann::json::parse(one.out)["loss"], nlohmann::json::parse(at.metrics("run").back())["validation_loss"]);
  for (const Args& ranks : {Args{"--ranks", "2"}, Args{"--ranks", "2", "--communicator", "local"}, kOnNvme}) {
    const Finished loss = at.spillway(evaluate(ranks)), same = at.spillway(generate(ranks));
    EXPECT_EQ(loss.status + same.status, 0) << loss.err << same.err;
    EXPECT_EQ(loss.out, one.out);
    EXPECT_EQ(same.out, text.out);
  }
  EXPECT_TRUE(std::filesystem::is_empty(at / "scratch"));
}

TEST_F(Sharded, RefusedCombinationsAreOneMessage) {
  train();
  const Finished stage = at.spillway(evaluate({"--ranks", "2", "--zero-stage", "2"}));
  EXPECT_EQ(stage.status, 2);
  EXPECT_TRUE(mentions(stage.err, "expected one of: 0 3 auto, got \"2\"")) << stage.err;
  const Finished ranks = at.spillway(generate({"--ranks", "3", "--pipeline-stages", "2"}));
  EXPECT_EQ(ranks.status, 2);
  EXPECT_TRUE(mentions(ranks.err, "give --ranks 2")) << ranks.err;
  const Finished missing = at.spillway(with({"evaluate", "--model", "run", "--data", "none.txt"}, {"--ranks", "2"}));
  EXPECT_EQ(missing.status, 4);
  EXPECT_EQ(missing.err.find("none.txt"), missing.err.rfind("none.txt")) << missing.err;
}

// Kills a rank during an evaluation, for which there are enough data that the test can see that it has begun.
TEST_F(Sharded, ADeadRankEndsAll) {
  train();
  at.write_text("long.txt", 20'000'000);
  int killed = 0;
  const auto kill_one = [&] {
    if (!mentions(at.read("stderr.txt"), " micro-batches, loss ") || killed > 0) return false;
    const std::string own = std::to_string(at.pid());
    std::ifstream children("/proc/" + own + "/task/" + own + "/children");
    const std::vector<pid_t> ranks{std::istream_iterator<pid_t>(children), {}};
    if (ranks.size() == 2) killed += ::kill(ranks[1], SIGKILL) == 0;
    return false;
  };
  const Args args = with({"evaluate", "--model", "run", "--data", "long.txt", "--sequence-length", "16"}, {"--ranks", "2"});
  const Finished end = at.spillway_until(args, kill_one, SIGKILL);
  EXPECT_EQ(killed, 1);
  EXPECT_EQ(end.status, 6) << end.err.substr(end.err.size() - std::min<size_t>(end.err.size(), 1000));
  EXPECT_TRUE(mentions(end.err, "[ranks] rank 1 on host ")) << end.err;
  EXPECT_TRUE(mentions(end.err, "(SIGKILL)") && mentions(end.err, "it was evaluating; all ranks ended")) << end.err;
  EXPECT_FALSE(mentions(end.err, "the same command again"));
}

// Shows that export holds no tensor: a process limited to 96 MiB exports a matrix of 128 MiB, which is a hole in its file.
using ShardedRelease = Sharded;
TEST_F(ShardedRelease, ExportHoldsNoTensor) {
  constexpr int kVocabulary = 1 << 18, kWidth = 128;
  std::filesystem::create_directory(at / "model");
  at.write("model/config.json",
           R"({"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 128, "n_positions": 8, "vocab_size": 262144})");
  nlohmann::ordered_json header;
  i64 end = 0;
  const auto add = [&](const std::string& name, const std::vector<i64>& shape) {
    i64 bytes = 4;
    for (const i64 n : shape) bytes *= n;
    header["transformer." + name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("wte.weight", {kVocabulary, kWidth});
  add("wpe.weight", {8, kWidth});
  for (const char* name : {"ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    const bool norm = name[0] == 'l';
    const i64 in = kWidth * (std::string(name) == "mlp.c_proj" ? 4 : 1);
    const i64 out = kWidth * (std::string(name) == "mlp.c_fc" ? 4 : std::string(name) == "attn.c_attn" ? 3 : 1);
    add("h.0." + std::string(name) + ".weight", norm ? std::vector<i64>{kWidth} : std::vector<i64>{in, out});
    add("h.0." + std::string(name) + ".bias", {out});
  }
  for (const char* name : {"ln_f.weight", "ln_f.bias"}) add(name, {kWidth});
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  at.write("model/model.safetensors", file + text);
  std::filesystem::resize_file(at / "model/model.safetensors", file.size() + text.size() + static_cast<size_t>(end));
  at.before_start([] {
    const rlimit limit{96 << 20, 96 << 20};  // of which the program's own code takes half; the largest tensor has 128 MiB
    ::setrlimit(RLIMIT_AS, &limit);
  });
  const Finished exported = at.spillway({"export", "model", "--out", "out", "--dtype", "bf16"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_GT(std::filesystem::file_size(at / "out/model.safetensors"), static_cast<size_t>(end / 2));
}

}  // namespace
}  // namespace spillway::test::sharded_test
