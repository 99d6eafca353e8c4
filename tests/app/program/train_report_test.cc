// Tests, with the whole program, the reports of train (metrics, audit, --profile, --endurance) and what the status command shows of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"
#include "trainer/settings/run_settings.h"

namespace spillway::app::train_report_test {
namespace {

using Json = nlohmann::json;

class TrainReport : public testing::Test {
 protected:
  std::vector<std::string> train(std::vector<std::string> more) const {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "and it was so. ";
    const std::vector<std::string> args = {
        "train",     "--model", "gpt2-tiny", "--data", folder_.write("t.txt", text), "--sequence-length", "32", "--steps", "3",
        "--threads", "1",       "--out",     run()};
    more.insert(more.begin(), args.begin(), args.end());
    return more;
  }
  std::string run() const { return (folder_.path() / "run").string(); }
  std::vector<std::string> on_nvme(std::vector<std::string> more) const {
    more.insert(more.end(), {"--nvme", (folder_.path() / "scratch").string(), "--place-optimizer", "nvme", "--optimizer-overlap", "none",
                             "--host-memory", "64MiB"});
    return train(std::move(more));
  }
  Json last_metrics() const {
    std::ifstream file(run() + "/metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return Json::parse(last);
  }
  const TemporaryFolder folder_;
};

TEST_F(TrainReport, EnduranceInTheSummaryTheMetricsAndStatus) {
  const Outcome outcome = run_app(on_nvme({"--endurance", "600TBW"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("written to nvme: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("rated writes (600TBW a drive) in "), std::string::npos) << outcome.out;
  const Json last = last_metrics();
  const double written = last["written_bytes"]["nvme"];
  EXPECT_GT(written, 0);
  EXPECT_EQ(last["nvme_written_per_step"], written);
  EXPECT_DOUBLE_EQ(last["nvme_written_per_token"], written / 32);
  EXPECT_DOUBLE_EQ(last["days_to_endurance"].get<double>() * last["nvme_written_per_day"].get<double>(), 600e12);
  const Json status = Json::parse(run_app({"status", run(), "--json"}).out);
  EXPECT_EQ(status["state"], "finished");
  EXPECT_EQ(status["step"], 3);
  EXPECT_EQ(status["checkpoint"]["step"], 3);
  EXPECT_EQ(status["written_bytes_per_step"]["nvme"], written);
  EXPECT_TRUE(status["nvme_written_bytes"]["days_to_endurance"].is_number());
}

// gpt2-tiny has 4 layers of 12 * 128 * 128 matrix elements and a head of 256 * 128. A model's FLOPs
// are two per token and element in the forward and four in the backward. Recomputation does not count.
TEST_F(TrainReport, OperationsOfTheModel) {
  for (const char* recompute : {"none", "block"}) {
    std::filesystem::remove_all(run());
    ASSERT_EQ(run_app(train({"--recompute", recompute, "--gradient-accumulation-steps", "2"})).status, 0);
    const Json last = last_metrics();
    const double elems = 4 * 12 * 128 * 128 + 256 * 128, tokens = 2 * 32;
    EXPECT_NEAR(last["flops_per_s"].get<double>() * last["step_ms"].get<double>() / 1e3, 6 * elems * tokens, 1) << recompute;
    EXPECT_TRUE(last.contains("matmul_share"));
  }
}

// Frozen weights need no weight gradient, so their backward needs one matrix product instead of two.
TEST_F(TrainReport, OperationsOfFrozenWeights) {
  ASSERT_EQ(run_app(train({"--freeze", "*.mlp.*"})).status, 0);
  const Json last = last_metrics();
  const double elems = 4 * 12 * 128 * 128 + 256 * 128, frozen = 4 * 8 * 128 * 128;
  EXPECT_NEAR(last["flops_per_s"].get<double>() * last["step_ms"].get<double>() / 1e3, (6 * elems - 2 * frozen) * 32, 1);
}

// A huge learning rate makes weights and then losses non-finite, so every step but the first
// is skipped. Skipped steps move exactly the bytes that the plan states for a skipped step.
TEST_F(TrainReport, SkippedStepsMoveWhatIsPlannedOfThem) {
  for (const char* overlap : {"none", "backward", "forward"}) {
    std::filesystem::remove_all(run());
    std::vector<std::string> args = on_nvme({"--learning-rate", "1e38", "--lr-schedule", "constant", "--no-final-checkpoint", "--json"});
    std::ranges::replace(args, "none", overlap);
    std::ranges::replace(args, "3", "6");
    const Outcome outcome = run_app(args);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(last_metrics()["skipped"]) << overlap;
    EXPECT_EQ(Json::parse(outcome.out)["unplanned_bytes"], 0) << overlap;
  }
}

TEST_F(TrainReport, WithoutARatingThereAreNoDaysAndWithoutNvmeNothing) {
  const Outcome rated_not = run_app(on_nvme({"--audit"}));
  ASSERT_EQ(rated_not.status, 0) << rated_not.err;
  EXPECT_NE(rated_not.out.find("written to nvme: "), std::string::npos) << rated_not.out;
  EXPECT_EQ(rated_not.out.find("rated writes"), std::string::npos) << rated_not.out;
  EXPECT_FALSE(last_metrics().contains("days_to_endurance"));
  std::filesystem::remove_all(run());
  const Outcome none = run_app(train({"--endurance", "600TBW", "--audit"}));
  ASSERT_EQ(none.status, 0) << none.err;
  EXPECT_EQ(none.out.find("written to nvme"), std::string::npos) << none.out;
  EXPECT_FALSE(last_metrics().contains("nvme_written_per_step"));
}

TEST_F(TrainReport, ProfileTellsEachKindOfInstruction) {
  const Outcome text = run_app(on_nvme({"--profile"}));
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* piece : {"profile", "ms/step", "Forward", "Backward", "  linear", "Step", "% of disk mixed"})
    EXPECT_NE(text.out.find(piece), std::string::npos) << piece << " in:\n" << text.out;
  std::filesystem::remove_all(run());
  const Outcome json = run_app(on_nvme({"--profile", "--json"}));
  ASSERT_EQ(json.status, 0) << json.err;
  const Json summary = Json::parse(json.out);
  double backward_ms = 0, ops_ms = 0, linear_flops_per_s = 0, update_bytes_per_s = 0;
  for (const Json& row : summary["profile"]) {
    if (row["kind"] == "Backward") (row["op"].is_null() ? backward_ms : ops_ms) += row["ms"].get<double>();
    if (row["kind"] == "Backward" && row["op"] == "linear") linear_flops_per_s = row["flops_per_s"];
    if (row["kind"] == "Step") update_bytes_per_s = row["bytes_per_s"];
  }
  EXPECT_GT(ops_ms, backward_ms / 2);
  EXPECT_LE(ops_ms, backward_ms);
  EXPECT_GT(linear_flops_per_s, 0);
  EXPECT_GT(update_bytes_per_s, 0);
  std::filesystem::remove_all(run());
  EXPECT_EQ(run_app(on_nvme({})).out.find("ms/step"), std::string::npos);
}

// With --audit a run ends by printing predicted and measured values; log.txt has them without it, too. The metrics hold the same values
// for single steps.
TEST_F(TrainReport, TheAuditStandsBesideThePrediction) {
  ASSERT_EQ(run_app(on_nvme({})).out.find("predicted"), std::string::npos);
  EXPECT_NE(read_whole(run() + "/log.txt")->find("audit of 1 step"), std::string::npos);
  std::filesystem::remove_all(run());
  const Outcome outcome = run_app(on_nvme({"--audit"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* piece :
       {"audit of 1 step", "predicted", "measured", "written to nvme", "peak process", "bound by ", "what would help: "})
    EXPECT_NE(outcome.out.find(piece), std::string::npos) << piece << " in:\n" << outcome.out;
  const Json last = last_metrics();
  double chain_ms = 0;
  for (const char* resource : {"compute", "memory", "disk", "data", "ranks"})
    chain_ms += last["phase_ms"]["bound_" + std::string(resource)].get<double>();
  const double lists_ms = last["phase_ms"]["head"].get<double>() + last["phase_ms"]["tail"].get<double>();
  EXPECT_NEAR(chain_ms, lists_ms, 1e-6 * lists_ms);
  EXPECT_LE(lists_ms, last["step_ms"].get<double>());
  const std::string bound = last["bound_by"];
  for (const char* resource : {"compute", "memory", "disk", "data", "ranks"})
    EXPECT_LE(last["phase_ms"]["bound_" + std::string(resource)], last["phase_ms"]["bound_" + bound]) << bound;
  EXPECT_GT(last["phase_ms"]["disk"], 0);
  EXPECT_GE(last["phase_ms"]["disk_read"].get<double>() + last["phase_ms"]["disk_write"].get<double>(), last["phase_ms"]["disk"]);
}

// The bytes that the audit predicts equal the measured bytes exactly, whatever times it measures.
TEST_F(TrainReport, TheAuditsBytesAreExact) {
  const Outcome outcome = run_app(on_nvme({"--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  int exact = 0;
  const Json summary = Json::parse(outcome.out);
  for (const Json& row : summary["audit"]) {
    if (row["unit"] != "bytes" || row["what"] == "peak process") continue;
    EXPECT_EQ(row["predicted"], row["measured"]) << row["what"];
    ++exact;
  }
  EXPECT_EQ(exact, 5);  // five values are exact: the bytes read from and written to nvme, and the peaks of three tiers
}

// Flags that only add a report change no number of a run, so the hash of those numbers stays the same.
TEST_F(TrainReport, FlagsChangeNoNumbers) {
  EXPECT_EQ(numbers_hash(train_config({"--profile", "--endurance", "1TBW"})), numbers_hash(train_config({})));
  const TrainConfig config = train_config({"--profile", "--endurance", "1.5PBW"});
  EXPECT_TRUE(config.run->profile);
  EXPECT_EQ(config.run->endurance_bytes, 1'500'000'000'000'000);
  EXPECT_EQ(Json::parse(to_json(config))["endurance"], "1500TBW");
}

}  // namespace
}  // namespace spillway::app::train_report_test
