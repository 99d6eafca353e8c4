// Tests, with the whole program, model folders that other programs made: a separate head despite tie_word_embeddings, the
// embedding row of pad_token_id, and padded rows under a router loss. Also tests runs that an older version of Spillway began.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/model.h"
#include "models/export/save.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "tests/app/program/support_ranks.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::app::folder_doors_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";
constexpr int kPad = 'e';  // the byte 'e' is the padding token, although texts contain the letter too

std::string whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<float> tensor(const fs::path& file, const std::string& name) {
  const data::SafetensorsReader reader(file);
  const data::TensorInfo* info = reader.find(name);
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(info->shape.elems()));
  reader.read(*info, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

class FolderDoors : public ::testing::Test {
 protected:
  FolderDoors() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the river runs past the mill and the bridge " + std::to_string(i * i) + "\n";
    folder_.write("text.txt", text);
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }

  // Writes a byte-level Llama with random weights and a separate head. `says` then replaces keys about the head in its config.json.
  void make_base(const std::string& name, const json& says) {
    json config = {{"model_type", "llama"},       {"vocab_size", 256},       {"hidden_size", 32},    {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},    {"intermediate_size", 48}, {"rms_norm_eps", 1e-5}, {"max_position_embeddings", 64},
                   {"tie_word_embeddings", false}};
    const nn::Sequential model = models::build(models::parse_config(config.dump(), "config.json"), DType::f32);
    const nn::EagerParameters memory(model);
    models::fill(model, models::ScratchWeights(7));
    models::save(model, folder_ / name);
    config.update(says);
    folder_.write(name + "/config.json", config.dump());
  }
  Words train(const std::string& base, const std::string& out, const Words& more, const char* steps = "3") const {
    Words all{"--model",
              at(base),
              "--data",
              at("text.txt"),
              "--tokenizer",
              "bytes",
              "--sequence-length",
              "16",
              "--micro-batch-size",
              "2",
              "--steps",
              steps,
              "--learning-rate",
              "1e-2",
              "--device-memory",
              "64MiB",
              "--host-memory",
              "64MiB",
              "--nvme",
              at("scratch"),
              "--out",
              at(out)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome trained(const std::string& base, const std::string& out, const Words& more = {}, const char* steps = "3") {
    return train_on(1, train(base, out, more, steps)).front();
  }
  double loss_of(const std::string& model) {
    const Outcome run = run_app({"evaluate", "--model", at(model), "--data", at("text.txt"), "--tokenizer", "bytes", "--sequence-length",
                                 "16", "--json", "--device-memory", "64MiB", "--host-memory", "64MiB"});
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? json::parse(run.out).at("loss").get<double>() : 0;
  }
  // Makes a checkpoint look like an older version's: without checksums and data rules, and without contents.json in the run.
  void make_old(const std::string& run, int step) {
    const fs::path manifest = checkpoint_path(at(run), step) / "manifest.json";
    json old = json::parse(whole(manifest));
    json kept = {{"format", 1}};
    for (const char* key : {"step", "updates", "cursor", "tokens", "dtype", "made_with", "schedule_steps", "data"}) kept[key] = old.at(key);
    std::ofstream(manifest) << kept.dump();
    fs::remove(fs::path(at(run)) / "contents.json");
  }

  const TemporaryFolder folder_;
};

TEST_F(FolderDoors, AHeadOfItsOwnIsKeptAtEveryDoor) {
  make_base("untied", {{"tie_word_embeddings", false}});
  make_base("says-tied", {{"tie_word_embeddings", true}});
  EXPECT_EQ(loss_of("says-tied"), loss_of("untied"));
  const Outcome run = trained("says-tied", "run"), want = trained("untied", "want");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("lm_head.weight"), HasSubstr("untied")));
  EXPECT_THAT(want.err, Not(HasSubstr("untied, as")));
  EXPECT_EQ(numbers_in(at("run")), numbers_in(at("want")));
  const fs::path saved = checkpoint_path(at("run"), 3);
  EXPECT_EQ(json::parse(whole(saved / "config.json")).at("tie_word_embeddings"), false);
  EXPECT_NE(tensor(saved / "model.safetensors", kHead), tensor(saved / "model.safetensors", kEmbedding));
  const Outcome more = trained("says-tied", "run", {}, "4");
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.err, AllOf(HasSubstr("continues at step 3"), Not(HasSubstr("older "))));

  for (const char* format : {"hf", "gguf", "onnx"}) {
    const Outcome exported = run_app({"export", at("says-tied"), "--format", format, "--out", at(format)});
    EXPECT_EQ(exported.status, 0) << exported.err;
    EXPECT_THAT(exported.err, HasSubstr("untied"));
  }
  EXPECT_EQ(json::parse(whole(folder_ / "hf/config.json")).at("tie_word_embeddings"), false);
  EXPECT_EQ(tensor(folder_ / "hf/model.safetensors", kHead), tensor(folder_ / "says-tied/model.safetensors", kHead));
  EXPECT_THAT(whole(folder_ / "gguf/model.gguf"), HasSubstr("output.weight"));
  EXPECT_THAT(whole(folder_ / "onnx/model.onnx"), HasSubstr("lm_head.weight"));

  const Outcome adapters = trained("says-tied", "adapters", {"--lora", "2"});
  EXPECT_EQ(adapters.status, 0) << adapters.err;
  EXPECT_THAT(adapters.err, HasSubstr("untied"));
  EXPECT_EQ(trained("untied", "adapters-want", {"--lora", "2"}).status, 0);
  EXPECT_EQ(numbers_in(at("adapters")), numbers_in(at("adapters-want")));
}

TEST_F(FolderDoors, AnOldRunGoesOnWithItsTiedHead) {
  make_base("base", {{"tie_word_embeddings", true}});
  fs::rename(at("base"), at("with-head"));
  fs::create_directories(at("base"));
  std::vector<float> embedding = tensor(folder_ / "with-head/model.safetensors", kEmbedding);
  // Writes the weights without lm_head.weight, since older versions did not read a separate head of a tied model.
  const data::SafetensorsReader all(folder_ / "with-head/model.safetensors");
  std::vector<data::TensorInfo> kept;
  for (const data::TensorInfo& info : all.tensors()) {
    if (info.name != kHead) kept.push_back(info);
  }
  {
    data::SafetensorsWriter writer(folder_ / "base/model.safetensors", kept);
    for (const data::TensorInfo& info : writer.tensors()) {
      std::vector<std::byte> bytes(static_cast<size_t>(info.bytes()));
      all.read(*all.find(info.name), 0, bytes);
      writer.write(info, 0, bytes);
    }
    writer.finish();
  }
  fs::copy_file(at("with-head/config.json"), at("base/config.json"));
  ASSERT_EQ(trained("base", "run").status, 0);
  make_old("run", 3);
  fs::copy_file(at("with-head/model.safetensors"), at("base/model.safetensors"), fs::copy_options::overwrite_existing);
  const Outcome more = trained("base", "run", {}, "4");
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.err, AllOf(HasSubstr("continues at step 3"), HasSubstr("the head stays tied")));
  EXPECT_EQ(json::parse(whole(checkpoint_path(at("run"), 4) / "config.json")).at("tie_word_embeddings"), true);
}

TEST_F(FolderDoors, ThePaddingRowRestsInEveryPlacement) {
  make_base("base", {{"pad_token_id", kPad}});
  const Words decayless{"--weight-decay", "0", "--gradient-accumulation-steps", "2"};
  const auto with = [&](Words more) {
    more.insert(more.end(), decayless.begin(), decayless.end());
    return more;
  };
  const Outcome run = trained("base", "device", with({"--place-optimizer", "device"}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("row 101 of the embedding"));
  const auto row = [](const std::vector<float>& table, int r) {
    return std::vector<float>(table.begin() + r * 32, table.begin() + (r + 1) * 32);
  };
  const std::vector<float> before = tensor(folder_ / "base/model.safetensors", kEmbedding),
                           after = tensor(checkpoint_path(at("device"), 3) / "model.safetensors", kEmbedding);
  EXPECT_EQ(row(after, kPad), row(before, kPad));
  EXPECT_NE(row(after, 't'), row(before, 't'));
  const std::string want = state_in(at("device"), 3);
  int n = 0;
  for (const Words& way : std::vector<Words>{{"--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme"},
                                             {"--pipeline-schedule", "vertical", "--recompute", "block", "--place-optimizer", "host"}}) {
    const std::string out = "way" + std::to_string(n++);
    EXPECT_EQ(trained("base", out, with(way)).status, 0);
    EXPECT_TRUE(state_in(at(out), 3) == want) << way[1];
  }
  EXPECT_EQ(train_on(2, train("base", "stages", with({"--pipeline-stages", "2"}))).front().status, 0);
  EXPECT_TRUE(state_in(at("stages"), 3) == want);
  make_old("device", 3);
  const Outcome more = trained("base", "device", with({"--place-optimizer", "device"}), "4");
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("from here on row 101"));
}

// Padding behind a row changes neither the row's loss nor its router (load-balancing) loss, whichever rows share a step.
TEST_F(FolderDoors, PaddingIsNoPartOfTheRouterLoss) {
  folder_.write("experts/config.json", R"({"model_type": "mixtral", "vocab_size": 256, "max_position_embeddings": 64, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "rms_norm_eps": 1e-5,
    "num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 5, "output_router_logits": true})");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += R"({"text": ")" + std::string("the mill ").substr(0, 3 + static_cast<size_t>(i % 6)) + "\"}\n";
  folder_.write("rows.jsonl", rows);
  const auto numbers = [&](const std::string& length, const std::string& packing, int ranks, const Words& more) {
    const std::string out = at("run" + length + packing + std::to_string(ranks) + (more.empty() ? "" : more.back()));
    Words all{"--model",
              at("experts"),
              "--from-scratch",
              "--data",
              at("rows.jsonl"),
              "--tokenizer",
              "bytes",
              "--packing",
              packing,
              "--sequence-length",
              length,
              "--micro-batch-size",
              "2",
              "--gradient-accumulation-steps",
              "2",
              "--steps",
              "3",
              "--learning-rate",
              "1e-2",
              "--device-memory",
              "64MiB",
              "--host-memory",
              "64MiB",
              "--nvme",
              at("scratch"),
              "--data-cache",
              at("cache"),
              "--out",
              out};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome run = train_on(ranks, all).front();
    EXPECT_EQ(run.status, 0) << run.err;
    std::vector<double> losses;
    std::ifstream lines(out + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      if (const json one = json::parse(line); one.contains("loss")) losses.push_back(one["loss"].get<double>());
    }
    return losses;
  };
  const std::vector<double> narrow = numbers("12", "off", 1, {}), wide = numbers("32", "off", 1, {});
  ASSERT_EQ(narrow.size(), 3u);
  for (size_t i = 0; i < narrow.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 1e-5) << i;
  EXPECT_EQ(numbers("32", "off", 1, {"--recompute", "block"}), wide);
  EXPECT_EQ(numbers("32", "off", 1, {"--pipeline-schedule", "vertical"}), wide);
  EXPECT_EQ(numbers("32", "on", 2, {"--zero-stage", "3"}).size(), 3u);
}

// Every command that reads a Git LFS pointer in place of weights, a tokenizer, a token file or a text names that file in its error.
TEST_F(FolderDoors, PointersOfGitLfsAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 524288\n";
  make_base("base", {{"tie_word_embeddings", false}});
  for (const char* name : {"data.txt", "data.jsonl", "data.bin"}) {
    const Outcome run = train_on(1, train("base", "run", {"--data", folder_.write(name, pointer)})).front();
    EXPECT_NE(run.status, 0) << name;
    EXPECT_THAT(run.err, AllOf(HasSubstr(name), HasSubstr("git lfs pull"))) << run.err;
  }
  folder_.write("base/tokenizer.json", pointer);
  EXPECT_THAT(run_app({"tokenize", "--data", at("text.txt"), "--tokenizer", at("base"), "--out", at("tokens.bin")}).err,
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("git lfs pull")));
  fs::remove(at("base/tokenizer.json"));
  folder_.write("base/model.safetensors", pointer);
  for (const Words& command : std::vector<Words>{{"export", at("base"), "--out", at("ex")},
                                                 {"generate", "--model", at("base"), "--prompt", "a"},
                                                 {"evaluate", "--model", at("base"), "--data", at("text.txt")},
                                                 {"plan", "--model", at("base")},
                                                 {"inspect", at("base")}}) {
    const Outcome run = run_app(command);
    EXPECT_NE(run.status, 0) << command[0];
    EXPECT_THAT(run.err, AllOf(HasSubstr("model.safetensors"), HasSubstr("524288 bytes"), HasSubstr("git lfs pull"))) << command[0];
  }
}

TEST(OldRecords, HaveTheFirstRules) {
  const Progress now{.step = 3};
  EXPECT_EQ(parse_record(to_record(now, "", ""))->progress.rules, kNumberRules);
  json old = json::parse(to_record(now, "", ""));
  old.erase("rules");
  EXPECT_EQ(parse_record(old.dump())->progress.rules, 1);
}

}  // namespace
}  // namespace spillway::app::folder_doors_test
