// Tests fine-tuning from a model folder and a file of conversations with one command: tokens are made once, the numbers are the same
// anywhere and after a kill, and the results are complete.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/support_program.h"
#include "tests/support/fixtures.h"

namespace spillway::test::fine_tuning_test {
namespace {

namespace fs = std::filesystem;

struct FineTuning : testing::Test {
  void SetUp() override {
    at.before_start([] { ::setenv("XDG_CACHE_HOME", "user-cache", 1); });
    fs::create_directory(at / "new");
    at.write("new/config.json",
             R"({"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 64, "max_position_embeddings": 96, "vocab_size": 700, "tie_word_embeddings": true, "eos_token_id": 641})");
    fs::copy_file(test::data("tokenizer/chat/tokenizer.json"), at / "new/tokenizer.json");
    fs::copy_file(test::data("chat/templates/chatml.jinja"), at / "new/chat_template.jinja");
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      lines += R"({"messages": [{"role": "user", "content": ")" + std::string(static_cast<size_t>(1 + i % 17), 'a') +
               R"("}, {"role": "assistant", "content": "In the beginning )" + std::to_string(i) + "\"}]}\n";
    }
    at.write("chat.jsonl", lines);
    expect_ends(
        at.spillway({"train", "--model", "new", "--from-scratch", "--data", "chat.jsonl", "--steps", "3", "--quiet", "--out", "made"}));
    expect_ends(at.spillway({"export", "made", "--out", "base"}));
  }
  static void expect_ends(const Finished& run) { ASSERT_EQ(run.status, 0) << run.err; }
  Args train(const std::string& out, const Args& more = {}) const {
    Args all{"train", "--model",           "base", "--data", "chat.jsonl", "--lora", "4", "--steps", "6", "--learning-rate",
             "1e-2",  "--sequence-length", "64",   "--out",  out};
    if (std::ranges::find(more, "--gradient-accumulation-steps") == more.end())
      all.insert(all.end(), {"--gradient-accumulation-steps", "2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Returns the number of token files kept in a folder.
  int kept_in(const std::string& folder) const {
    std::error_code none;
    return std::ranges::count_if(fs::directory_iterator(at / folder, none),
                                 [](const auto& entry) { return entry.path().extension() == ".tokens"; });
  }
  std::string adapter(const std::string& run) const { return at.read(run + "/checkpoints/step-00000006/adapter_model.safetensors"); }
  Workplace at;
};

TEST_F(FineTuning, IsOneCommandWhoseTokensAreMadeOnce) {
  const Finished first = at.spillway(train("one"));
  expect_ends(first);
  EXPECT_NE(first.err.find("data: chat.jsonl: 60 documents, "), std::string::npos) << first.err;
  EXPECT_EQ(kept_in("data-cache"), 1);
  for (const char* file : {"adapter_config.json", "tokenizer.json", "chat_template.jinja"})
    EXPECT_TRUE(fs::exists(at / "one/checkpoints/step-00000006" / file)) << file;
  expect_ends(at.spillway({"export", "one", "--merge", "--out", "merged"}));
  EXPECT_EQ(at.read("merged/tokenizer.json"), at.read("base/tokenizer.json"));
  const Finished said = at.spillway({"generate", "--model", "merged", "--prompt", "In the", "--max-tokens", "5", "--temperature", "0"});
  expect_ends(said);
  EXPECT_TRUE(said.out.starts_with("In the")) << said.out;
  expect_ends(at.spillway({"evaluate", "--model", "merged", "--data", "chat.jsonl", "--quiet"}));
  EXPECT_EQ(kept_in("user-cache/spillway/data"), 1);
  EXPECT_FALSE(fs::exists(at / "runs")) << "nothing is left in the working folder";
}

TEST_F(FineTuning, EvaluatesARunWithTokensKeptBesideIt) {
  expect_ends(at.spillway(
      {"train", "--model", "base", "--data", "chat.jsonl", "--steps", "1", "--sequence-length", "64", "--quiet", "--out", "all/run"}));
  EXPECT_EQ(kept_in("all/data-cache"), 1);
  at.write("other.jsonl", "{\"text\": \"In the beginning\"}\n");
  for (const char* model : {"all/run", "all/run/checkpoints/step-00000001"})
    expect_ends(at.spillway({"evaluate", "--model", model, "--data", "other.jsonl", "--quiet"}));
  EXPECT_EQ(kept_in("all/data-cache"), 2);
  expect_ends(at.spillway({"evaluate", "--model", "all/run", "--data", "other.jsonl", "--data-cache", "kept", "--quiet"}));
  EXPECT_EQ(kept_in("kept"), 1);
  EXPECT_FALSE(fs::exists(at / "user-cache/spillway/data"));
}

TEST_F(FineTuning, ChatAnswersThroughTheTemplate) {
  at.write("said.txt", "\nhello\nand then?\n/new\nhello\n/exit\nnever read\n");
  at.before_start([] { ::dup2(::open("said.txt", O_RDONLY), 0); });
  const Args flags{"--temperature", "0", "--max-tokens", "6", "--tokenizer", "base"};
  Args chat{"chat", "base"};
  chat.insert(chat.end(), flags.begin(), flags.end());
  const Finished talk = at.spillway(chat);
  expect_ends(talk);
  const auto answer = [&](nlohmann::json messages) {
    at.write("prompts.jsonl", nlohmann::json{{"messages", messages}}.dump());
    Args same{"generate", "--model", "base", "--prompts", "prompts.jsonl"};
    same.insert(same.end(), flags.begin(), flags.end());
    const Finished line = at.spillway(same);
    EXPECT_EQ(line.status, 0) << line.err;
    return nlohmann::json::parse(line.out)["text"].get<std::string>();
  };
  const auto said = [](const char* who, const std::string& what) { return nlohmann::json{{"role", who}, {"content", what}}; };
  const std::string first = answer({said("user", "hello")});
  const std::string second = answer({said("user", "hello"), said("assistant", first), said("user", "and then?")});
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(talk.out, "> " + first + "\n> " + second + "\n> > " + first + "\n> \n");
}

TEST_F(FineTuning, ATemplateThatRefusesATurnDoesNotEndTheChat) {
  at.write("strict.jinja",
           "{% if messages[-1].content == 'no' %}{{ raise_exception('not that') }}{% endif %}"
           "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  const auto talk = [&](const std::string& lines) {
    at.write("said.txt", lines);
    return at.spillway({"chat", "base", "--chat-template", "strict.jinja", "--temperature", "0", "--max-tokens", "4"});
  };
  at.before_start([] { ::dup2(::open("said.txt", O_RDONLY), 0); });
  const Finished refused = talk("hello\nno\nand then?\n"), smooth = talk("hello\nand then?\n");
  expect_ends(refused);
  expect_ends(smooth);
  EXPECT_NE(refused.err.find("not that"), std::string::npos) << refused.err;
  std::string without = refused.out;
  const size_t second = without.find("> ", 2);
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(without.erase(second, 2), smooth.out) << "what was refused is not part of the conversation";
}

TEST_F(FineTuning, TheTemplateItWasTrainedWithTravels) {
  const std::string mine = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}";
  at.write("mine.jinja", mine);
  fs::create_directory(at / "base/additional_chat_templates");
  at.write("base/additional_chat_templates/tool_use.jinja", "tools");
  const std::string rag = "rag: {% for m in messages %}{{ m.content }}\n{% endfor %}";
  at.write("base/additional_chat_templates/rag.jinja", rag);
  at.write("base/chat_template.json", R"({"chat_template": "of a processor"})");
  expect_ends(at.spillway(train("own", {"--chat-template", "mine.jinja"})));
  expect_ends(at.spillway(train("named", {"--chat-template", "rag"})));
  expect_ends(at.spillway(train("plain")));
  for (const std::string run : {"own", "named", "plain"}) expect_ends(at.spillway({"export", run, "--merge", "--out", run + "-hf"}));
  const auto text = [&](const std::string& folder, const std::string& name) {
    return fs::exists(at / (folder + "/" + name)) ? at.read(folder + "/" + name) : "none";
  };
  const std::string step = "/checkpoints/step-00000006", tools = "additional_chat_templates/tool_use.jinja";
  for (const std::string& folder : {"own" + step, std::string("own-hf")}) {
    EXPECT_EQ(text(folder, "chat_template.jinja"), mine) << folder;
    EXPECT_EQ(text(folder, "chat_template.json"), "none") << folder;
    EXPECT_EQ(text(folder, tools), "none") << folder << ": conversations with tools had the same template";
    EXPECT_EQ(text(folder, "additional_chat_templates/rag.jinja"), rag) << folder;
  }
  EXPECT_EQ(text("named-hf", "chat_template.jinja"), rag);
  for (const std::string& folder : {"plain" + step, std::string("plain-hf")}) {
    EXPECT_EQ(text(folder, "chat_template.jinja"), at.read("base/chat_template.jinja")) << folder;
    EXPECT_EQ(text(folder, tools), "tools") << folder;
  }
  at.write("prompts.jsonl", R"({"messages": [{"role": "user", "content": "hello"}]})");
  const auto answered = [&](const Args& more) {
    Args all{"generate", "--model", "own", "--prompts", "prompts.jsonl", "--temperature", "0", "--max-tokens", "6", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished said = at.spillway(all);
    expect_ends(said);
    return said.out;
  };
  EXPECT_EQ(answered({}), answered({"--chat-template", "mine.jinja"}));
  expect_ends(at.spillway({"export", "own", "--merge", "--format", "gguf", "--out", "own-gguf"}));
  EXPECT_NE(at.read("own-gguf/model.gguf").find(mine), std::string::npos);
}

TEST_F(FineTuning, GenerationConfigSaysWhatEndsAText) {
  const auto tokens = [&](const std::string& model) {
    at.write("prompts.jsonl", R"({"prompt": "In the beginning"})");
    const Finished said =
        at.spillway({"generate", "--model", model, "--prompts", "prompts.jsonl", "--temperature", "0", "--max-tokens", "8", "--quiet"});
    EXPECT_EQ(said.status, 0) << said.err;
    return nlohmann::json::parse(said.out)["tokens"].get<std::vector<int>>();
  };
  fs::remove(at / "base/generation_config.json");
  const std::vector<int> whole = tokens("base");
  ASSERT_GE(whole.size(), 3u);
  const int end = whole[2];
  const auto before = std::vector<int>(whole.begin(), std::ranges::find(whole, end));
  const std::string ends = R"({"eos_token_id": [641, )" + std::to_string(end) + "]}";
  at.write("base/generation_config.json", ends);
  EXPECT_EQ(tokens("base"), before);
  at.write("base/generation_config.json", R"({"eos_token_id": )" + std::to_string(end) + "}");
  EXPECT_EQ(tokens("base"), before);
  at.write("base/generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(tokens("base"), whole) << "config.json's then";
  at.write("base/generation_config.json", ends);
  expect_ends(at.spillway(train("run")));
  expect_ends(at.spillway({"export", "run", "--merge", "--out", "run-hf"}));
  EXPECT_EQ(at.read("run/checkpoints/step-00000006/generation_config.json"), ends);
  EXPECT_EQ(at.read("run-hf/generation_config.json"), ends);
  for (const char* bad : {R"("<|eot|>")", "700", "-2", "true", "1.5", "[641, 700]", "[[641]]", R"({"a": 1})"}) {
    at.write("base/generation_config.json", std::string(R"({"eos_token_id": )") + bad + "}");
    const Finished refused = at.spillway({"generate", "--model", "base", "--prompt", "In", "--quiet"});
    EXPECT_EQ(refused.status, 4) << bad;
    EXPECT_NE(refused.err.find("generation_config.json: expected `eos_token_id` to be a token"), std::string::npos) << refused.err;
  }
}

TEST_F(FineTuning, ATokenizerIsTheFileThatIsNamed) {
  fs::copy_file(at / "base/tokenizer.json", at / "tokenizer.json");
  fs::copy_file(test::data("tokenizer/gpt2-style/tokenizer.json"), at / "other.json");
  const auto tokens = [&](const std::string& tokenizer) {
    const Finished shown =
        at.spillway({"inspect", "chat.jsonl", "--tokenizer", tokenizer, "--chat-template", "base/chat_template.jinja", "--json"});
    EXPECT_EQ(shown.status, 0) << shown.err;
    return shown.status == 0 ? nlohmann::json::parse(shown.out).at("tokens").get<int>() : 0;
  };
  EXPECT_EQ(tokens("tokenizer.json"), tokens("base"));
  EXPECT_NE(tokens("other.json"), tokens("base")) << "not the tokenizer.json beside it";
}

TEST_F(FineTuning, AdaptersOnBytesAreSpokenToInBytes) {
  expect_ends(at.spillway(train("bytes", {"--tokenizer", "bytes", "--loss-on", "all"})));
  const Args generate{"generate", "--model", "bytes", "--prompt", "In", "--max-tokens", "4", "--temperature", "0", "--quiet"};
  Args named = generate;
  named.insert(named.end(), {"--tokenizer", "bytes"});
  const Finished own = at.spillway(generate), want = at.spillway(named);
  expect_ends(own);
  EXPECT_EQ(own.out, want.out);
}

// Shows that every command gives a text the tokens of transformers' tokenizer(text), which tests/data/rows/fixtures holds.
TEST_F(FineTuning, TextsBeginAndEndAsTheTokenizerHasThem) {
  std::ifstream in(test::data("rows/fixtures/expected.json"));
  const nlohmann::json text = nlohmann::json::parse(in)["cases"][0];
  at.write("text.jsonl", R"({"text": "In the beginning God created the heaven and the earth.", "id": 1})");
  at.write("text.txt", "In the beginning God created the heaven and the earth.");
  at.write("base/tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})");
  at.write("tokens.jsonl", nlohmann::json{{"input_ids", text["ids"]}}.dump());
  const Finished trained = at.spillway({"train", "--model", "base", "--data", "text.jsonl", "--steps", "1", "--out", "texts"});
  expect_ends(trained);
  EXPECT_NE(trained.err.find(R"(begins with "<|begin_of_text|>" and ends with "<|end_of_text|>")"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find(R"(data: text.jsonl: the key "id", present in 1 row)"), std::string::npos) << trained.err;
  const auto lost = [&](const std::string& data, const std::string& length) {
    const Finished said = at.spillway({"evaluate", "--model", "base", "--data", data, "--sequence-length", length, "--quiet", "--json"});
    EXPECT_EQ(said.status, 0) << said.err;
    return said.status == 0 ? nlohmann::json::parse(said.out) : nlohmann::json{{"loss", 0}, {"tokens", 0}};
  };
  const std::string row = std::to_string(text["ids"].size()), window = std::to_string(text["ids"].size() - 1);
  const nlohmann::json want = lost("tokens.jsonl", row), stream = lost("text.txt", window);
  EXPECT_EQ(lost("text.jsonl", row), want);
  EXPECT_EQ(stream["tokens"], want["tokens"]) << "a window of all its tokens";
  EXPECT_NEAR(stream["loss"].get<double>(), want["loss"].get<double>(), 1e-5);
  expect_ends(at.spillway({"tokenize", "--tokenizer", "base", "--data", "text.txt", "--out", "text.bin"}));
  EXPECT_EQ(lost("text.bin", window), stream);
  const auto written = [&](const std::string& prompt) {
    return at.spillway({"generate", "--model", "base", "--prompt", prompt, "--max-tokens", "8", "--temperature", "0", "--quiet"}).out;
  };
  EXPECT_EQ("<|begin_of_text|>" + written("And God"), written("<|begin_of_text|>And God"));
}

TEST_F(FineTuning, WhatGivesNoRowsSaysWhatWould) {
  at.write("long.jsonl", R"({"prompt": "In the beginning God created the heaven and the earth.", "completion": "x"})");
  const Finished cut = at.spillway({"train", "--model", "base", "--data", "long.jsonl", "--sequence-length", "8", "--out", "none"});
  EXPECT_EQ(cut.status, 2);
  EXPECT_NE(cut.err.find("give a --sequence-length of at least 2"), std::string::npos) << cut.err;
  at.write("rows.json", "[]");
  const Finished other = at.spillway({"train", "--model", "base", "--data", "rows.json", "--out", "none"});
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("ends in .jsonl"), std::string::npos) << other.err;
}

TEST_F(FineTuning, HasTheSameBitsAnywhereAndAfterAKill) {
  expect_ends(at.spillway(train("device")));
  const std::string want = adapter("device");
  const Args nvme{"--place-parameters",
                  "nvme",
                  "--place-gradients",
                  "nvme",
                  "--place-optimizer",
                  "nvme",
                  "--place-activations",
                  "host",
                  "--nvme",
                  "scratch",
                  "--checkpoint-every",
                  "2"};
  const auto saved = [&] { return fs::exists(at / "killed/checkpoints/step-00000002"); };
  at.spillway_until(train("killed", nvme), saved, SIGKILL);
  expect_ends(at.spillway(train("killed", nvme)));
  EXPECT_TRUE(adapter("killed") == want);
  expect_ends(at.spillway(train("ranks", {"--ranks", "2", "--gradient-accumulation-steps", "1", "--zero-stage", "3"})));
  EXPECT_TRUE(adapter("ranks") == want);
  expect_ends(at.spillway(train("stages", {"--ranks", "2", "--pipeline-stages", "2"})));
  EXPECT_TRUE(adapter("stages") == want);
  expect_ends(at.spillway(train("apart", {"--packing", "off"})));
  EXPECT_FALSE(adapter("apart") == want);
}

TEST_F(FineTuning, AMixtureHasTheSameBitsAfterAKillAndOnOtherRanks) {
  at.write("facts.jsonl", "{\"text\": \"The ark was made of wood\"}\n{\"text\": \"The rain was upon the earth forty days\"}\n");
  const auto mixed = [&](const std::string& out, const std::string& weight, const Args& more = {}) {
    Args all = with(train(out, more), "--data", "chat.jsonl:0.7");
    all.insert(all.end(), {"--data", "facts.jsonl:" + weight});
    return all;
  };
  const Finished whole = at.spillway(mixed("whole", "0.3"));
  expect_ends(whole);
  EXPECT_NE(whole.err.find("33.3 % of the rows come from facts.jsonl: 4 rows"), std::string::npos) << whole.err;
  const std::string want = adapter("whole");
  const auto saved = [&] { return fs::exists(at / "killed/checkpoints/step-00000003"); };
  at.spillway_until(mixed("killed", "0.3", {"--checkpoint-every", "3"}), saved, SIGKILL);
  const Finished other = at.spillway(mixed("killed", "0.2", {"--checkpoint-every", "3"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("\"facts.jsonl:0.3\"] -> ["), std::string::npos) << other.err;
  expect_ends(at.spillway(mixed("killed", "0.3", {"--ranks", "2", "--gradient-accumulation-steps", "1"})));
  EXPECT_TRUE(adapter("killed") == want);
  expect_ends(at.spillway(mixed("weighted", "0.9")));
  EXPECT_FALSE(adapter("weighted") == want);
  const Finished bad = at.spillway(mixed("bad", "0"));
  EXPECT_EQ(bad.status, 2);
  EXPECT_NE(bad.err.find("facts.jsonl:0"), std::string::npos) << bad.err;
}

TEST_F(FineTuning, WhatCannotBeReadNamesTheLineAndLeavesNothing) {
  at.write("bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": 7}\n{\"text\": \"fine too\"}\n");
  const Args command{"train", "--model", "base", "--data", "bad.jsonl", "--steps", "1", "--out", "never"};
  const Finished bad = at.spillway(command);
  EXPECT_EQ(bad.status, 4);
  EXPECT_NE(bad.err.find("bad.jsonl, line 2, column"), std::string::npos) << bad.err;
  EXPECT_FALSE(fs::exists(at / "never"));
  Args skipping = command;
  skipping.insert(skipping.end(), {"--skip-bad-lines"});
  const Finished skipped = at.spillway(skipping);
  EXPECT_EQ(skipped.status, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("1 bad lines"), std::string::npos) << skipped.err;

  fs::remove(at / "base/chat_template.jinja");
  const Finished plain = at.spillway(train("without"));
  EXPECT_EQ(plain.status, 4);
  EXPECT_NE(plain.err.find("expected a chat template for conversations"), std::string::npos) << plain.err;
  at.write("raising.jinja", "{{ raise_exception('only one turn') }}");
  const Finished raised = at.spillway(train("raised", {"--chat-template", "raising.jinja"}));
  EXPECT_EQ(raised.status, 4);
  EXPECT_NE(raised.err.find("chat.jsonl, line 1"), std::string::npos) << raised.err;
  EXPECT_NE(raised.err.find("only one turn"), std::string::npos) << raised.err;
  EXPECT_EQ(at.spillway(train("named", {"--chat-template", "tool_use"})).status, 2);
  fs::remove(at / "base/tokenizer.json");
  const Finished none = at.spillway(train("none"));
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("expected a tokenizer.json in"), std::string::npos) << none.err;
}

TEST_F(FineTuning, ATokenizerIsTrainedAndUsed) {
  at.write_text("text.txt", 60'000);
  expect_ends(at.spillway({"tokenize", "--train-vocab", "400", "--data", "text.txt", "--out", "own"}));
  expect_ends(at.spillway({"tokenize", "--tokenizer", "own", "--data", "text.txt", "--out", "text.bin"}));
  const Finished back = at.spillway({"tokenize", "--tokenizer", "own", "--decode", "text.bin"});
  EXPECT_EQ(back.out, at.read("text.txt") + "<|endoftext|>");
  expect_ends(at.spillway({"train", "--model", "new", "--from-scratch", "--tokenizer", "own", "--data", "text.txt", "--sequence-length",
                           "8", "--steps", "1", "--quiet", "--no-final-checkpoint", "--out", "small"}));
}

}  // namespace
}  // namespace spillway::test::fine_tuning_test
