// Tests training with a router loss, which balances the load of the experts. The results depend neither on the tier of activations, nor on
// recomputation, nor on sharing the batch between two ranks. Impossible requests are refused.
#include <gtest/gtest.h>

#include "tests/app/program/support_ranks.h"

namespace spillway::app::router_loss_test {
namespace {

using Words = std::vector<std::string>;

struct RouterLoss : testing::Test {
  RouterLoss() {
    std::string words;
    u32 state = 1;
    for (int i = 0; i < 5000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
    folder.write("text.txt", words);
    for (const bool evened : {true, false})
      folder.write(evened ? "evened/config.json" : "plain/config.json",
                   std::string(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256,
                     "max_position_embeddings": 64, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                     "intermediate_size": 48, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "num_local_experts": 4,
                     "num_experts_per_tok": 2, "sliding_window": null, "router_aux_loss_coef": 0.5, "output_router_logits": )") +
                       (evened ? "true}" : "false}"));
  }
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  Words flags(const std::string& model, const Words& more) {
    out = at("run" + std::to_string(runs++));
    Words all{"--model",
              at(model),
              "--from-scratch",
              "--data",
              at("text.txt"),
              "--tokenizer",
              "bytes",
              "--sequence-length",
              "16",
              "--micro-batch-size",
              "2",
              "--steps",
              "4",
              "--learning-rate",
              "1e-2",
              "--nvme",
              at("scratch"),
              "--device-memory",
              "64MiB",
              "--host-memory",
              "64MiB",
              "--out",
              out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::pair<Words, std::string> trained(int ranks, const std::string& model, const Words& more) {
    const Outcome run = train_on(ranks, flags(model, more)).front();
    EXPECT_EQ(run.status, 0) << run.err;
    return {numbers_in(out), state_in(out, 4)};
  }

  const TemporaryFolder folder;
  std::string out;
  int runs = 0;
};

TEST_F(RouterLoss, HasTheSameBitsWhereverActivationsLie) {
  const Words four{"--gradient-accumulation-steps", "4"};
  const auto with = [&](Words more) {
    more.insert(more.end(), four.begin(), four.end());
    return more;
  };
  const auto want = trained(1, "evened", with({"--recompute", "none", "--place-activations", "device"}));
  ASSERT_EQ(want.first.size(), 4u);
  for (const Words& way : std::vector<Words>{{"--recompute", "block"},
                                             {"--recompute", "none", "--place-activations", "nvme", "--place-optimizer", "nvme"},
                                             {"--pipeline-schedule", "vertical", "--recompute", "block"},
                                             {"--pipeline-schedule", "vertical", "--recompute", "none", "--place-activations", "host"},
                                             {"--threads", "2", "--recompute", "none"}})
    EXPECT_TRUE(trained(1, "evened", with(way)) == want) << way[0] << " " << way[1];
  EXPECT_NE(trained(1, "plain", with({})).first, want.first) << "planted: it does something";
}

TEST_F(RouterLoss, IsSharedByRanksOfABatch) {
  const Words two{"--gradient-accumulation-steps", "2"};
  const auto with = [&](Words more) {
    more.insert(more.end(), two.begin(), two.end());
    return more;
  };
  const auto want = trained(2, "evened", with({"--zero-stage", "0"}));
  EXPECT_TRUE(trained(2, "evened", with({"--zero-stage", "3", "--place-parameters", "nvme", "--recompute", "block"})) == want);
}

TEST_F(RouterLoss, IsOfNoPipeline) {
  const Outcome run = train_on(2, flags("evened", {"--pipeline-stages", "2"})).front();
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("output_router_logits"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace spillway::app::router_loss_test
