// Tests epochs with the whole program: which rows each step has, that a partial batch is weighted by its own
// tokens for any number of micro-batches and ranks, how a run resumes, and what is reported of rows and padding.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokens/token_source.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run/resolve.h"

namespace spillway::app::epochs_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Epochs : public testing::Test {
 protected:
  // Writes `count` rows and returns their path. Row i has 3 to 7 tokens, which differ from the tokens of the other rows.
  std::string rows(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      Json ids = Json::array();
      for (int t = 0; t < 3 + i % 5; ++t) ids.push_back(1 + (i * 8 + t) % 250);
      text += Json{{"input_ids", ids}}.dump() + "\n";
    }
    return folder_.write(std::to_string(count) + ".jsonl", text);
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  // Returns the flags that all tests use. A flag in `more` replaces the default of the same name.
  Words flags(const std::string& out, const std::string& data, const Words& more) const {
    Words all{"--data",   data,  "--precision", "fp64",  "--threads",         "1", "--host-memory", "64MiB", "--tensorboard", "off",
              "--device", "cpu", "--tokenizer", "bytes", "--sequence-length", "8", "--out",         at(out)};
    const Words otherwise[] = {{"--model", "gpt2-tiny"}, {"--packing", "off"}};
    for (const Words& pair : otherwise) {
      if (std::ranges::find(more, pair[0]) == more.end()) all.insert(all.end(), pair.begin(), pair.end());
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome train(const std::string& out, const std::string& data, const Words& more, int ranks = 1) const {
    const Outcome run = train_on(ranks, flags(out, data, more)).front();
    EXPECT_EQ(run.status, 0) << run.err;
    return run;
  }
  std::vector<Json> metrics(const std::string& out) const {
    std::ifstream file(at(out) + "/metrics.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<i64> of_steps(const std::string& out, const char* key) const {
    std::vector<i64> values;
    for (const Json& line : metrics(out)) values.push_back(line[key]);
    return values;
  }
  const TemporaryFolder folder_;
};

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

TEST_F(Epochs, TheLastStepHasWhatIsLeftOverAndTheFirstLinesSaySo) {
  const Outcome run = train("a", rows(10), {"--micro-batch-size", "4", "--epochs", "2", "--data-order", "sequential"});
  EXPECT_EQ(of_steps("a", "samples"), (std::vector<i64>{4, 4, 2, 4, 4, 2}));
  EXPECT_EQ(of_steps("a", "tokens"), (std::vector<i64>{18, 19, 13, 18, 19, 13})) << "3 + 4 + 5 + 6, 7 + 3 + 4 + 5, 6 + 7";
  EXPECT_EQ(of_steps("a", "positions"), (std::vector<i64>(6, 32)));
  EXPECT_TRUE(has(run.err, "an epoch is 3 steps; the last step has only the remaining 2; 6 steps are 2 epochs")) << run.err;
  const Outcome drops = train("b", rows(10), {"--micro-batch-size", "4", "--epochs", "2", "--drop-last"});
  EXPECT_EQ(of_steps("b", "samples"), (std::vector<i64>(4, 4)));
  EXPECT_TRUE(has(drops.err, "an epoch is 2 steps; the remaining 2 are dropped (--drop-last); 4 steps are 2 epochs")) << drops.err;
  const Outcome large = train("c", rows(3), {"--micro-batch-size", "8"});
  EXPECT_EQ(of_steps("c", "samples"), (std::vector<i64>{3}));
  EXPECT_TRUE(has(large.err, "a step could take more than these rows, and none is repeated")) << large.err;
  train("d", rows(100), {"--epochs", "0.29", "--no-final-checkpoint"});
  EXPECT_EQ(metrics("d").size(), 29u);
}

// An epoch of 3 rows is smaller than a batch. Its only step has the loss and gradient
// norm of a run whose batch is those 3 rows, up to the last bits of fp64 sums.
TEST_F(Epochs, APartialBatchHasItsTrueWeightAlsoWithEmptyMicroBatchesAndRanks) {
  const std::string data = rows(3);
  const Words order{"--data-order", "sequential", "--learning-rate", "1e-3"};
  const auto step = [&](const std::string& out, Words more, int ranks = 1) {
    more.insert(more.end(), order.begin(), order.end());
    train(out, data, more, ranks);
    EXPECT_EQ(metrics(out).size(), 1u);
    return metrics(out)[0];
  };
  const Json want = step("whole", {"--micro-batch-size", "3"});
  const std::vector<std::tuple<std::string, Words, int>> ways = {
      {"rows", {"--micro-batch-size", "8"}, 1},
      {"accumulated", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "4"}, 1},
      {"one", {"--gradient-accumulation-steps", "5"}, 1},
      {"ranks", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "2", "--zero-stage", "2"}, 2},
      {"empty", {"--micro-batch-size", "4", "--zero-stage", "3"}, 2},
      {"pipeline", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "4", "--pipeline-stages", "2"}, 2}};
  for (const auto& [out, more, ranks] : ways) {
    const Json got = step(out, more, ranks);
    for (const char* key : {"loss", "grad_norm"}) EXPECT_NEAR(got[key].get<double>(), want[key].get<double>(), 1e-12) << out << " " << key;
    for (const char* key : {"tokens", "samples"}) EXPECT_EQ(got[key], want[key]) << out << " " << key;
  }
  EXPECT_EQ(want["tokens"], 3 + 4 + 5);
}

// A micro-batch without targets adds nothing to the router's load-balancing loss.
TEST_F(Epochs, EmptyMicroBatchesHaveNoRouterLoss) {
  folder_.write("moe/config.json",
                R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256, "max_position_embeddings": 64,
                    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
                    "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "num_local_experts": 4,
                    "num_experts_per_tok": 2, "sliding_window": null, "router_aux_loss_coef": 0.5, "output_router_logits": true})");
  const std::string data = rows(3);
  const auto step = [&](const std::string& out, const char* accumulated, int ranks = 1) {
    train(out, data, {"--model", at("moe"), "--from-scratch", "--data-order", "sequential", "--gradient-accumulation-steps", accumulated},
          ranks);
    return metrics(out).at(0);
  };
  const Json want = step("whole", "3");
  for (const Json& got : {step("empty", "5"), step("ranks", "2", 2), step("empty-rank", "1", 4)}) {
    for (const char* key : {"loss", "grad_norm"}) EXPECT_NEAR(got[key].get<double>(), want[key].get<double>(), 1e-12) << key;
    EXPECT_EQ(got["tokens"], want["tokens"]);
  }
}

TEST_F(Epochs, ARunGoesOnWithinAnEpochOnAnyRanks) {
  const std::string data = rows(10);
  const Words whole{"--micro-batch-size", "2", "--global-batch-size", "4", "--epochs", "2"};
  const auto with = [&](const char* steps) {
    Words all(whole.begin(), whole.end() - 2);
    all.insert(all.end(), {"--steps", steps, "--warmup-steps", "0", "--lr-schedule", "constant"});
    return all;
  };
  train("straight", data, with("6"));
  for (const char* stop : {"1", "2", "3", "5"}) {
    const std::string out = std::string("stopped-") + stop;
    train(out, data, with(stop), 2);
    train(out, data, with("6"));
    EXPECT_EQ(of_steps(out, "samples"), of_steps("straight", "samples"));
    EXPECT_EQ(of_steps(out, "tokens"), of_steps("straight", "tokens"));
    const auto got = metrics(out), want = metrics("straight");
    for (size_t s = 0; s < 6; ++s) EXPECT_NEAR(got[s]["loss"].get<double>(), want[s]["loss"].get<double>(), 1e-9) << stop << " " << s;
  }
}

TEST_F(Epochs, CheckpointsOfAnEpochAreThoseOfItsLastStep) {
  train("a", rows(10), {"--micro-batch-size", "4", "--epochs", "3", "--checkpoint-every", "1epoch", "--keep", "9"});
  std::vector<std::string> saved;
  for (const auto& path : checkpoints(at("a"))) saved.push_back(path.filename().string());
  EXPECT_EQ(saved, (Words{"step-00000003", "step-00000006", "step-00000009"}));
  const Progress progress = read_progress(checkpoints(at("a"))[1]);
  EXPECT_EQ(progress.cursor, 20);
  EXPECT_EQ(progress.rules, kNumberRules);
  train("b", rows(10), {"--micro-batch-size", "4", "--epochs", "3", "--drop-last", "--checkpoint-every", "1epoch", "--keep", "9"});
  EXPECT_EQ(checkpoints(at("b")).size(), 3u);
  EXPECT_EQ(read_progress(checkpoints(at("b"))[0]).cursor, 10) << "the two dropped rows are behind it";
}

TEST_F(Epochs, SequentialPackedRowsAreTheFile) {
  const std::string data = rows(30);
  const Outcome run = train("a", data, {"--packing", "on", "--data-order", "sequential"});
  i64 tokens = 0, documents = 0;
  for (int i = 0; i < 30; ++i) tokens += 3 + i % 5;
  for (const i64 one : of_steps("a", "tokens")) {
    i64 left = one;
    while (left > 0) left -= 3 + documents++ % 5;
    EXPECT_EQ(left, 0) << "a row has whole documents, the next ones of the file";
  }
  EXPECT_EQ(documents, 30);
  EXPECT_TRUE(has(run.out, "trained: " + std::to_string(tokens) + " tokens in ")) << run.out;
}

TEST_F(Epochs, PaddingIsNoTokenAndBothNumbersAreShown) {
  const Outcome run = train("a", rows(10), {"--micro-batch-size", "10"});
  EXPECT_TRUE(has(run.out, "trained: 50 tokens in 1 step, ") && has(run.out, "; 40 of them contribute to the loss; ")) << run.out;
  EXPECT_TRUE(has(run.out, "; with padding 80 positions, ")) << run.out;
  EXPECT_TRUE(has(run.err, " with padding)  norm ")) << run.err;
  const Json line = metrics("a")[0];
  EXPECT_NEAR(line["tokens_per_s"].get<double>() / line["positions_per_s"].get<double>(), 50.0 / 80, 1e-12);
  EXPECT_EQ(read_progress(checkpoints(at("a"))[0]).tokens, 50);
  const Json status = Json::parse(run_app({"status", at("a"), "--json"}).out);
  EXPECT_DOUBLE_EQ(status["tokens_per_s"], line["tokens_per_s"]);
  EXPECT_DOUBLE_EQ(status["positions_per_s"], line["positions_per_s"]);
  EXPECT_TRUE(has(run_app({"status", at("a")}).out, " with padding)"));
  const Outcome top = run_app({"top", at("a")});
  EXPECT_TRUE(has(top.out, " with padding)")) << top.out;
}

// A checkpoint stores the position in each data source. If mixture weights change later, each source
// continues at its next row. Sources are recognised by their files, not by their order on the command line.
TEST_F(Epochs, OtherWeightsOnTheWayGoOnInEachSource) {
  const std::string a = rows(10), b = rows(7);
  const auto mixture = [&](const std::string& data, const std::string& more, const char* steps, const Words& rest = {}) {
    Words all{"--data", more, "--micro-batch-size", "2", "--steps", steps};
    all.insert(all.end(), rest.begin(), rest.end());
    return train("run", data, all);
  };
  mixture(a + ":1", b + ":1", "4");
  const Progress before = read_progress(checkpoints(at("run")).back());
  ASSERT_TRUE(before.mixture);
  EXPECT_EQ(*before.mixture, data::mixture_from_the_beginning({1, 1}));
  const Outcome changed = mixture(b + ":3", a + ":1", "6", {"--allow-change", "data"});
  EXPECT_TRUE(has(changed.err, "the mixture changes at row 8")) << changed.err;
  const data::MixtureStart after{8, {3, 1}, {4, 4}, {1, 0}};
  EXPECT_EQ(read_progress(checkpoints(at("run")).back()).mixture, after);
  const Outcome same = mixture(b + ":3", a + ":1", "8");
  EXPECT_FALSE(has(same.err, "the mixture changes")) << same.err;
  EXPECT_EQ(read_progress(checkpoints(at("run")).back()).mixture, after);
}

// Describes a run that an older version of the program began. Its checkpoints say nothing about epochs and mixtures.
struct OlderRun : Epochs {
  std::vector<std::unique_ptr<data::TokenSource>> sources() const {
    return data::open_token_sources({folder_.write("a.txt", std::string(41, 'a')), folder_.write("b.txt", std::string(21, 'b'))}, 256);
  }
  static Progress at_step_five() {
    Progress progress;
    progress.step = 5, progress.cursor = 20, progress.rules = 1;
    return progress;
  }
};

TEST_F(OlderRun, IsToldThatStepsEndWithEpochsFromHereOn) {
  const auto from = sources();
  const data::Loader uneven(from, {.sequence_length = 4, .micro_batch_size = 4}), even(from, {.sequence_length = 4, .micro_batch_size = 5});
  const Progress progress = at_step_five();
  EXPECT_TRUE(has(older_epochs_note(progress, uneven), "from row 20 on"));
  EXPECT_EQ(older_epochs_note(progress, even), "");
  Progress newer = progress;
  newer.rules = kNumberRules;
  EXPECT_EQ(older_epochs_note(newer, uneven), "");
  EXPECT_EQ(older_epochs_note(Progress(), uneven), "");
}

TEST_F(OlderRun, OfAMixtureGoesOnByTheWeightsOfItsConfiguration) {
  const auto from = sources();
  const auto settled = [&](Progress& progress, const std::vector<double>& before, const std::vector<double>& now) {
    data::Loader loader(from, {.sequence_length = 4, .micro_batch_size = 4, .weights = now});
    const std::string note = settle_mixture(progress, before, loader.fingerprint(), loader);
    EXPECT_EQ(progress.mixture, loader.mixture_start());
    return note;
  };
  Progress progress = at_step_five();
  EXPECT_EQ(settled(progress, {3, 1}, {3, 1}), "");
  EXPECT_EQ(progress.mixture, data::mixture_from_the_beginning({3, 1}));
  progress = at_step_five();
  EXPECT_TRUE(has(settled(progress, {3, 1}, {1, 1}), "the mixture changes at row"));
  EXPECT_EQ(progress.mixture, (data::MixtureStart{20, {1, 1}, {15, 5}, {0, 1}}));
  progress = at_step_five();
  EXPECT_TRUE(has(settled(progress, {}, {1, 1}), "each source starts at its first row"));
  EXPECT_EQ(progress.mixture, (data::MixtureStart{20, {1, 1}, {0, 0}, {0, 1}}));
  EXPECT_TRUE(has(settled(progress, {1, 1}, {}), "from row 20 on each epoch"));
  progress = {};
  EXPECT_EQ(settled(progress, {}, {1, 2}), "");
}

}  // namespace
}  // namespace spillway::app::epochs_test
