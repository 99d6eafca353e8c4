// Runs the whole program and tests the files that a training run writes
// for those who watch it: event files, metrics.csv and the final summary.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/app/support_app.h"
#include "tests/trainer/events/support_events.h"
#include "trainer/events/scalars.h"

namespace spillway::app::watching_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct WatchedTraining : testing::Test {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";

  Outcome train(i64 steps, const std::vector<std::string>& more = {}) const {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "and it was so. ";
    std::vector<std::string> args = {"train",
                                     "--model",
                                     "gpt2-tiny",
                                     "--data",
                                     folder.write("t.txt", text),
                                     "--sequence-length",
                                     "32",
                                     "--steps",
                                     std::to_string(steps),
                                     "--threads",
                                     "1",
                                     "--lr-schedule",
                                     "constant",
                                     "--warmup-steps",
                                     "0"};
    args.insert(args.end(), more.begin(), more.end());
    if (std::ranges::find(more, "--out") == more.end()) args.insert(args.end(), {"--out", run.string()});
    return run_app(args);
  }
  static std::vector<std::string> lines_of(const fs::path& file) {
    std::ifstream in(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<Json> metrics() const {
    std::vector<Json> rows;
    for (const std::string& line : lines_of(run / "metrics.jsonl")) rows.push_back(Json::parse(line));
    return rows;
  }
  std::vector<ReadEvent> events() const {
    std::vector<ReadEvent> all;
    for (const fs::path& file : event_files(run)) {
      for (ReadEvent& event : read_events(*read_whole(file))) all.push_back(std::move(event));
    }
    return all;
  }
  // Collects the scalars as TensorBoard does: a start event discards earlier values whose step is its own or a later one.
  std::map<std::string, std::map<i64, float>> scalars() const {
    std::map<std::string, std::map<i64, float>> all;
    for (const ReadEvent& event : events()) {
      if (event.session_status == 1) {
        for (auto& [tag, points] : all) points.erase(points.lower_bound(event.step), points.end());
      }
      for (const ReadValue& value : event.values) {
        if (!value.has_number) continue;
        EXPECT_TRUE(all[value.tag].emplace(event.step, value.number).second) << value.tag << " twice at step " << event.step;
      }
    }
    return all;
  }
};

TEST_F(WatchedTraining, EventsHaveTheNumbersOfTheMetrics) {
  const Outcome done = train(3, {"--validation-fraction", "0.2", "--sample-every", "2", "--prompt", "and"});
  ASSERT_EQ(done.status, 0) << done.err;
  ASSERT_EQ(event_files(run).size(), 1u);
  const auto all = scalars();
  const std::vector<Json> rows = metrics();
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows) {
    const i64 step = row["step"];
    for (const auto& [key, tag] : std::map<std::string, std::string>{{"/loss", "loss"},
                                                                     {"/grad_norm", "grad_norm"},
                                                                     {"/lr", "learning_rate"},
                                                                     {"/tokens_per_s", "speed/tokens_per_s"},
                                                                     {"/step_ms", "speed/step_ms"},
                                                                     {"/phase_ms/backward", "phase_ms/backward"},
                                                                     {"/tier_bytes/device", "memory/device_bytes"},
                                                                     {"/peak_bytes/host", "memory/peak_host_bytes"},
                                                                     {"/read_bytes/host", "bytes/read_host"}}) {
      ASSERT_TRUE(all.contains(tag) && all.at(tag).contains(step)) << tag;
      EXPECT_EQ(all.at(tag).at(step), static_cast<float>(row[Json::json_pointer(key)].get<double>())) << tag;
    }
    for (const auto& phase : row["phase_ms"].items()) EXPECT_TRUE(all.contains("phase_ms/" + phase.key())) << phase.key();
  }
  EXPECT_EQ(all.at("validation/loss").size(), 1u);
  EXPECT_EQ(all.at("validation/loss").at(3), static_cast<float>(rows[2]["validation_loss"].get<double>()));

  std::map<std::string, std::pair<i64, std::string>> texts;
  for (const ReadEvent& event : events()) {
    for (const ReadValue& value : event.values) {
      if (value.plugin == "text") texts[value.tag] = {event.step, value.texts.at(0)};
    }
  }
  EXPECT_EQ(texts["config"].first, 0);
  EXPECT_EQ(Json::parse(texts["config"].second), Json::parse(*read_whole(run / "config.json")));
  EXPECT_EQ(texts["sample"].first, 2);
  EXPECT_TRUE(texts["sample"].second.starts_with("    and")) << texts["sample"].second;
}

TEST_F(WatchedTraining, GoingOnFromACheckpointDropsWhatIsDoneAgain) {
  ASSERT_EQ(train(4, {"--checkpoint-every", "2", "--metrics-csv"}).status, 0);
  fs::remove_all(run / "checkpoints/step-00000004");
  const Outcome again = train(5, {"--metrics-csv"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("continues at step 2 of 5"), std::string::npos) << again.err;
  ASSERT_EQ(event_files(run).size(), 2u);
  EXPECT_EQ(read_events(*read_whole(event_files(run)[1])).at(1).step, 3);
  const auto all = scalars();
  const std::vector<Json> rows = metrics();
  ASSERT_EQ(rows.size(), 5u);
  ASSERT_EQ(all.at("loss").size(), 5u);
  for (const Json& row : rows) {
    EXPECT_EQ(all.at("loss").at(row["step"]), static_cast<float>(row["loss"].get<double>()));
    EXPECT_EQ(all.at("speed/step_ms").at(row["step"]), static_cast<float>(row["step_ms"].get<double>())) << "of the step done again";
  }
  const std::vector<std::string> csv = lines_of(run / "metrics.csv");
  ASSERT_EQ(csv.size(), 6u);
  for (size_t i = 1; i < csv.size(); ++i) EXPECT_TRUE(csv[i].starts_with(std::to_string(i) + ",")) << csv[i];
}

TEST_F(WatchedTraining, MetricsCsvHasARowAStepAndIsMadeFromTheLinesBefore) {
  ASSERT_EQ(train(2).status, 0);
  EXPECT_FALSE(fs::exists(run / "metrics.csv"));
  ASSERT_EQ(train(3, {"--metrics-csv"}).status, 0);
  const std::vector<std::string> csv = lines_of(run / "metrics.csv"), lines = lines_of(run / "metrics.jsonl");
  ASSERT_EQ(csv.size(), 4u);
  EXPECT_EQ(csv[0] + "\n", csv_header());
  for (size_t i = 1; i < csv.size(); ++i) EXPECT_EQ(csv[i] + "\n", csv_row(scalars_of(lines[i - 1])));
  const size_t loss = csv[3].find(',') + 1;
  EXPECT_EQ(std::stod(csv[3].substr(loss)), metrics()[2]["loss"].get<double>()) << "to the bit";
  ASSERT_EQ(train(4).status, 0);
  EXPECT_EQ(lines_of(run / "metrics.csv").size(), 5u) << "a run that has one keeps it whole";
}

// Writing event files and metrics.csv changes no number of a run. Times and memory are not compared, since they differ between any two
// runs.
TEST_F(WatchedTraining, NothingElseChangesByIt) {
  const std::string other = (folder.path() / "other").string();
  ASSERT_EQ(train(3, {"--metrics-csv"}).status, 0);
  ASSERT_EQ(train(3, {"--tensorboard", "off", "--out", other}).status, 0);
  EXPECT_TRUE(event_files(other).empty());
  const auto watched = lines_of(run / "metrics.jsonl"), alone = lines_of(other + "/metrics.jsonl");
  ASSERT_EQ(watched.size(), alone.size());
  for (size_t i = 0; i < watched.size(); ++i) {
    const Json a = Json::parse(watched[i]), b = Json::parse(alone[i]);
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "tier_bytes", "peak_bytes", "read_bytes", "written_bytes"})
      EXPECT_EQ(a[key], b[key]) << key;
  }
  EXPECT_EQ(*read_whole(run / "checkpoints/step-00000003/model.safetensors"),
            *read_whole(other + "/checkpoints/step-00000003/model.safetensors"));
  std::set<std::string> more, names;
  for (const auto& entry : fs::directory_iterator(run)) more.insert(entry.path().filename().string());
  for (const auto& entry : fs::directory_iterator(other)) names.insert(entry.path().filename().string());
  more.erase("metrics.csv");
  std::erase_if(more, [](const std::string& name) { return name.starts_with("events.out.tfevents."); });
  EXPECT_EQ(more, names);
  EXPECT_EQ(numbers_hash(train_config({"--tensorboard", "off", "--metrics-csv"})), numbers_hash(train_config({})));
}

// Each phase of a step that metrics.jsonl names has a tag in the fixed list of the event files, even if all state is on nvme.
TEST_F(WatchedTraining, EveryPhaseHasATag) {
  const std::string scratch = (folder.path() / "scratch").string();
  const Outcome done = train(3, {"--nvme", scratch, "--place-parameters", "nvme", "--place-gradients", "nvme", "--place-optimizer", "nvme",
                                 "--gradient-accumulation-steps", "2", "--host-memory", "64MiB"});
  ASSERT_EQ(done.status, 0) << done.err;
  const std::vector<std::string>& tags = scalar_tags();
  for (const Json& row : metrics()) {
    for (const auto& phase : row["phase_ms"].items())
      EXPECT_NE(std::ranges::find(tags, "phase_ms/" + phase.key()), tags.end()) << phase.key();
  }
}

// A run opens with its weights, its data and its step, each in one line behind the line that says where it begins.
TEST_F(WatchedTraining, ThreeLinesSayWhatIsTrained) {
  const Outcome said = train(2, {"--validation-fraction", "0.1", "--micro-batch-size", "2", "--gradient-accumulation-steps", "3"});
  ASSERT_EQ(said.status, 0) << said.err;
  // 300 times 15 bytes make 140 rows of 32 tokens, with the target of the last; 14 of them are the last tenth.
  const std::string opening =
      "new run of 2 steps (" + run.string() +
      ")\n  weights: gpt2-tiny, 858880 fp32 parameters in 6 blocks, random (seed 1337)\n  data: " + (folder.path() / "t.txt").string() +
      ", bytes as tokens, 126 rows of 32 tokens; validation: 14 rows\n  step: 6 rows (1 rank x 2 x 3), 192 tokens, on "
      "1 thread; learning rate 3e-04; an epoch is 21 steps;";
  EXPECT_NE(said.err.find(opening), std::string::npos) << opening << "\nin:\n" << said.err;
  const Outcome more = train(3, {"--validation-fraction", "0.1", "--micro-batch-size", "2", "--gradient-accumulation-steps", "3"});
  EXPECT_NE(more.err.find("in 6 blocks, read from " + (run / "checkpoints/step-00000002").string()), std::string::npos) << more.err;
}

// A run ends with five lines, of which the last says where the result is and names a command.
TEST_F(WatchedTraining, FiveLinesSayWhatCameOfIt) {
  const Outcome said = train(2);
  ASSERT_EQ(said.status, 0) << said.err;
  const std::string checkpoint = (run / "checkpoints/step-00000002").string();
  EXPECT_EQ(std::ranges::count(said.out, '\n'), 5) << said.out;
  const auto rows = metrics();
  for (const std::string& piece :
       {fmt::format("done: step 2, loss {:.4f} ({:.4f} at step 1)\n", rows[1]["loss"].get<double>(), rows[0]["loss"].get<double>()),
        std::string("\n  trained: 64 tokens in 2 steps, "), std::string("\n  time: "), std::string("\n  peak memory: device "),
        "\n  result: " + checkpoint + "; next: spillway generate --model " + run.string() + " --prompt The\n"})
    EXPECT_NE(said.out.find(piece), std::string::npos) << piece << " in:\n" << said.out;
  const Outcome more = train(3, {"--no-final-checkpoint", "--audit"});
  for (const char* piece : {"trained: 32 tokens in 1 step, ", "; including earlier starts 96", ", without weights (--no-final-checkpoint)",
                            "trained parameters: gpt2-tiny, 858880 of 858880"})
    EXPECT_NE(more.out.find(piece), std::string::npos) << piece << " in:\n" << more.out;
  EXPECT_EQ(more.out.find("in Python"), std::string::npos) << more.out;
  fs::remove_all(run);
  const Json json = Json::parse(train(2, {"--json"}).out);
  EXPECT_EQ(json["trained"]["model"], "gpt2-tiny");
  EXPECT_EQ(json["trained"]["tokens"], 64);
  EXPECT_EQ(json["checkpoint"], checkpoint);
  EXPECT_TRUE(json["python"].get<std::string>().ends_with("from_pretrained(\"" + checkpoint + "\")"));
}

// With --quiet a run that goes well prints nothing; log.txt has everything. Asked for JSON, it prints that.
TEST_F(WatchedTraining, QuietIsSilent) {
  const Outcome said = train(2, {"--quiet"});
  EXPECT_EQ(said.status, 0);
  EXPECT_EQ(said.out + said.err, "");
  const std::string log = *read_whole(run / "log.txt");
  for (const char* piece : {"new run of 2 steps", "done: step 2, loss ", "audit of 1 step"})
    EXPECT_NE(log.find(piece), std::string::npos) << piece;
  const Outcome finished = train(2, {"--quiet"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.out + finished.err, "");
  EXPECT_EQ(Json::parse(train(3, {"--quiet", "--json"}).out)["step"], 3);
}

// The summary of a LoRA run names the adapters' parameters, the number of tokens that
// contribute to the loss, and the line of Python that loads the adapters in PEFT.
TEST_F(WatchedTraining, TheSummaryOfAdapters) {
  ASSERT_EQ(train(1).status, 0);
  const std::string base = (folder.path() / "base").string(), tuned = (folder.path() / "tuned").string();
  ASSERT_EQ(run_app({"export", run.string(), "--out", base}).status, 0);
  const std::string rows = folder.write("rows.jsonl", "{\"prompt\":\"Who built it? \",\"completion\":\"Noah.\"}\n");
  const Outcome said =
      run_app({"train",  "--model",           base, "--data",  rows, "--tokenizer", "bytes", "--lora", "2",   "--lora-targets",
               "c_attn", "--sequence-length", "32", "--steps", "2",  "--threads",   "1",     "--out",  tuned, "--audit"});
  ASSERT_EQ(said.status, 0) << said.err;
  // c_attn of 4 layers has matrices of 128 x 2 and 2 x (3 * 128), which make 4096 parameters.
  for (const char* piece :
       {"trained parameters: adapters of rank 2 on c_attn of base, 4096 of ", "trained: 38 tokens in 2 steps, ",
        "; 10 of them contribute to the loss", "; with padding 64 positions, ", "import peft; model = peft.AutoPeftModelForCausalLM"})
    EXPECT_NE(said.out.find(piece), std::string::npos) << piece << " in:\n" << said.out;
  EXPECT_NE(said.err.find("of them frozen) in 6 blocks, read from " + base + ", adapters random (seed 1337)\n"), std::string::npos)
      << said.err;
}

}  // namespace
}  // namespace spillway::app::watching_test
