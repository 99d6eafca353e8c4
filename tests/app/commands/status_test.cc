// Tests what the status command reads from the folder of a run, from a folder with half-written files, and from folders of other kinds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/commands/status_report.h"
#include "tests/app/support_app.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/run_status.h"

namespace spillway::app::status_test {
namespace {

namespace fs = std::filesystem;

// Returns a line of metrics.jsonl for a step that took half a second, had 1000 tokens and wrote 4000 bytes to nvme.
std::string line(i64 step) {
  return R"({"step": )" + std::to_string(step) +
         R"(, "loss": 2.5, "tokens": 1000, "step_ms": 500.0, "tier_bytes": {"device": 1, "host": 2, "nvme": 3},
  "peak_bytes": {"device": 4, "host": 5, "nvme": 6}, "read_bytes": {"device": 0, "host": 10, "nvme": 2000},
  "written_bytes": {"device": 0, "host": 20, "nvme": 4000}})";
}

std::string lines(i64 first, i64 last) {
  std::string text;
  for (i64 step = first; step <= last; ++step) {
    std::string one = line(step);
    std::erase(one, '\n');
    text += one + "\n";
  }
  return text;
}

class StatusTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { folder_.write("run/" + name, text); }
  void config(const std::string& more = "") const { write("config.json", R"({"steps": 100, "nvme": ["/a", "/b"])" + more + "}"); }
  fs::path run() const { return folder_.path() / "run"; }
  RunStatus read() const { return read_run_status(run()); }
  const TemporaryFolder folder_;
};

TEST_F(StatusTest, PaceTiersAndWhatIsLeft) {
  config();
  write("metrics.jsonl", lines(1, 60));
  const RunStatus s = read();
  EXPECT_EQ(s.state, RunStatus::State::stopped);
  EXPECT_EQ(s.step, 60);
  EXPECT_EQ(s.steps, 100);
  EXPECT_EQ(s.loss, 2.5);
  EXPECT_DOUBLE_EQ(*s.step_s, 0.5);
  EXPECT_DOUBLE_EQ(*s.tokens_per_s, 2000);
  EXPECT_DOUBLE_EQ(*s.left_s, 20);
  EXPECT_LT(*s.last_step_age_s, 60);
  EXPECT_EQ(*s.tier_bytes, (RunStatus::ByTier{1, 2, 3}));
  EXPECT_EQ(*s.peak_bytes, (RunStatus::ByTier{4, 5, 6}));
  EXPECT_EQ(s.read_bytes, (RunStatus::ByTier{0, 10, 2000}));
  EXPECT_EQ(s.written_bytes, (RunStatus::ByTier{0, 20, 4000}));
  EXPECT_FALSE(s.checkpoint);
}

// A stopped run says which steps it does again: those after its newest checkpoint.
TEST_F(StatusTest, StepsThatAreDoneAgain) {
  config();
  write("metrics.jsonl", lines(1, 60));
  RunStatus s = read();
  const auto says = [&](const char* piece) { return status_text(s).find(piece) != std::string::npos; };
  EXPECT_TRUE(says("it begins at step 1, so 60 steps are done again, about 30.0 s; none, if the run's state on nvme")) << status_text(s);
  s.checkpoint = RunStatus::Checkpoint{"step-00000059", 59, 1};
  s.tier_bytes = RunStatus::ByTier{1, 2, 0};
  EXPECT_TRUE(says("it begins at step 60, so 1 step is done again, about 500 ms\n")) << status_text(s);
  s.checkpoint->step = 60;
  EXPECT_TRUE(says("no step is done twice")) << status_text(s);
  s.state = RunStatus::State::running;
  EXPECT_FALSE(says("to go on")) << status_text(s);
}

TEST_F(StatusTest, WearAndTheDaysItLeaves) {
  config(R"(, "endurance": "1TBW")");
  write("metrics.jsonl", lines(1, 3));
  const RunStatus s = read();
  EXPECT_DOUBLE_EQ(s.wear.bytes_per_step, 4000);
  EXPECT_DOUBLE_EQ(s.wear.bytes_per_token, 4);
  EXPECT_DOUBLE_EQ(s.wear.bytes_per_day, 8000.0 * 86400);
  EXPECT_DOUBLE_EQ(*s.wear.days, 2e12 / (8000.0 * 86400));  // the two drives together have an endurance of 2e12 bytes
  config(R"(, "endurance": "very")");
  EXPECT_FALSE(read().wear.days);
}

TEST_F(StatusTest, HalfALineAndOtherLinesArePassedOver) {
  config();
  const std::string whole = lines(1, 7);
  for (const std::string& end :
       {std::string("{\"step\": 8, \"lo"), std::string("\xff\xfe"), std::string("[8]\n"), std::string("{\"step\": \"8\"}\n"),
        std::string("{\"step\": -8}\n"), std::string("{\"loss\": 1}\n"), std::string("\n\n"), std::string("{\"step\": 1e30}\n")}) {
    write("metrics.jsonl", whole + end);
    EXPECT_EQ(read().step, 7) << end;
    EXPECT_DOUBLE_EQ(*read().step_s, 0.5) << end;
  }
  // A line of metrics.jsonl marked "recovered" replaces one that a dead process failed to write. It has a
  // step but no times, so status keeps the pace of earlier lines. A value of the wrong type is ignored.
  write("metrics.jsonl", whole + R"({"step": 8, "loss": null, "nonfinite": "nan", "recovered": true})" + "\n");
  EXPECT_EQ(read().step, 8);
  EXPECT_FALSE(read().loss);
  EXPECT_DOUBLE_EQ(*read().step_s, 0.5);
  write("metrics.jsonl", whole + R"({"step": 8, "tier_bytes": 3, "written_bytes": {"nvme": "x"}, "step_ms": "y", "tokens": []})" + "\n");
  EXPECT_EQ(read().step, 8);
  EXPECT_FALSE(read().tier_bytes);
}

TEST_F(StatusTest, OnlyTheEndOfALongFileIsRead) {
  config();
  write("metrics.jsonl", std::string(3 << 20, 'x') + "\n" + lines(90000, 90060));
  EXPECT_EQ(read().step, 90060);
  write("metrics.jsonl", lines(1, 20000));
  EXPECT_EQ(read().step, 20000);
}

TEST_F(StatusTest, RunningWhileTheLockIsHeld) {
  config();
  {
    RunFolder owner(run());
    owner.write_config(R"({"steps": 100})");
    EXPECT_EQ(read().state, RunStatus::State::running);
    EXPECT_TRUE(read().owner.ends_with("process " + std::to_string(::getpid()))) << read().owner;
    EXPECT_EQ(read().step, 0);
    EXPECT_FALSE(read().step_s);
  }
  EXPECT_EQ(read().state, RunStatus::State::stopped);
  EXPECT_EQ(read().owner, "");
  write("metrics.jsonl", lines(100, 100));
  EXPECT_EQ(read().state, RunStatus::State::finished);
  const RunFolder again(run());  // opening the run folder fails if status did not release the run's lock
}

TEST_F(StatusTest, TheNewestCompleteCheckpoint) {
  config();
  write("metrics.jsonl", lines(1, 60));
  for (const char* step : {"30", "50"})
    write(std::string("checkpoints/step-000000") + step + "/manifest.json",
          std::string(R"({"format": 1, "step": )") + step + R"(, "updates": 1, "cursor": 0, "tokens": 0})");
  write("checkpoints/step-00000060/model.safetensors", "half");
  ASSERT_TRUE(read().checkpoint);
  EXPECT_EQ(read().checkpoint->step, 50);
  write("checkpoints/step-00000055/manifest.json", "{");
  EXPECT_EQ(read().checkpoint->step, 50);
  fs::last_write_time(run() / "checkpoints/step-00000050/manifest.json", fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_NEAR(read().checkpoint->age_s, 7200, 60);
}

TEST_F(StatusTest, ThroughTheProgram) {
  config(R"(, "endurance": "600TBW")");
  write("metrics.jsonl", lines(1, 60));
  const Outcome text = run_app({"status", run().string()});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* piece :
       {"stopped: step 60 of 100", "500 ms a step, 2000 tokens/s, left 20.0 s", "loss: 2.5000", "held: device 1 B, host 2 B, nvme 3 B",
        "to nvme: 3.91 KiB a step", "600TBW a drive", "last durable checkpoint: none"}) {
    EXPECT_NE(text.out.find(piece), std::string::npos) << piece << " in:\n" << text.out;
  }
  const auto json = nlohmann::json::parse(run_app({"status", run().string(), "--json"}).out);
  EXPECT_EQ(json["state"], "stopped");
  EXPECT_EQ(json["step"], 60);
  EXPECT_EQ(json["written_bytes_per_step"]["nvme"], 4000);
  EXPECT_TRUE(json["nvme_written_bytes"]["days_to_endurance"].is_number());
  EXPECT_TRUE(json["checkpoint"].is_null());
}

TEST_F(StatusTest, WhatIsNoRun) {
  EXPECT_EQ(run_app({"status", "/no/such/run"}).status, 4);
  const Outcome outcome = run_app({"status", folder_.path().string()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("expected a run folder"), std::string::npos) << outcome.err;
  config("");
  EXPECT_EQ(run_app({"status", run().string()}).status, 2);  // a model folder has a config.json too, but is no run
  write("config.json", "{");
  write("metrics.jsonl", "");
  EXPECT_EQ(run_app({"status", run().string()}).status, 0);
}

}  // namespace
}  // namespace spillway::app::status_test
