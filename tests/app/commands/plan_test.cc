// Tests what the plan command prints about a plan that fits: alternatives that fit too, and the train command that runs the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/support_app.h"
#include "trainer/plan/alternatives.h"

namespace spillway::app::plan_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Runs the plan command for gpt2-tiny with part of its training state on nvme.
class PlanCommand : public testing::Test {
 protected:
  Outcome plan(const Words& more) const {
    Words args = {"plan",         "--model",       "gpt2-tiny", "--sequence-length", "64",    "--device",
                  "cpu",          "--threads",     "1",         "--device-memory",   "16MiB", "--nvme",
                  path("s:1GiB"), "--host-memory", "40MiB",     "--place-optimizer", "nvme"};
    args.insert(args.end(), more.begin(), more.end());
    return run_app(args);
  }
  Json json(Words more = {}) const {
    more.push_back("--json");
    const Outcome outcome = plan(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  const TemporaryFolder folder_;
};

TEST_F(PlanCommand, NamesWhatElseFitsFastestFirst) {
  const Json alternatives = json()["alternatives"];
  ASSERT_GE(alternatives.size(), 3u);
  EXPECT_LE(alternatives.size(), kMostAlternatives);
  EXPECT_TRUE(std::ranges::is_sorted(alternatives, {}, [](const Json& one) { return one["predicted_step_s"].get<double>(); }));
  const Outcome outcome = plan({});
  EXPECT_NE(outcome.out.find("\nwhat else fits, fastest first:    a step    device      host      nvme"), std::string::npos) << outcome.out;
}

TEST_F(PlanCommand, SaysHowBusyEachLaneIs) {
  const Json plan_json = json(), shares = plan_json["lane_shares"];
  EXPECT_EQ(shares.size(), static_cast<size_t>(parallel::kLanes));
  for (const Json& share : shares) EXPECT_TRUE(share.get<double>() >= 0 && share.get<double>() <= 1) << shares;
  EXPECT_GT(shares["compute"].get<double>(), 0);
  EXPECT_GT(shares["optimizer"].get<double>(), 0);
  EXPECT_EQ(shares["send"].get<double>(), 0) << "no other stage";
  EXPECT_GT(plan_json["computing_share"].get<double>(), 0);
  // The share of a step that is spent computing is at most the share in which the compute lane (the thread that computes) is busy. The
  // two shares may be sums of equal times in different orders, hence the tolerance.
  EXPECT_LE(plan_json["computing_share"].get<double>(), shares["compute"].get<double>() * (1 + 1e-9));
  const std::string text = plan({}).out;
  const size_t at = text.find("\n  lanes are busy: compute ");
  ASSERT_NE(at, text.npos) << text;
  const std::string line = text.substr(at, text.find('\n', at + 1) - at);
  EXPECT_TRUE(line.ends_with(" %") && line.find(", optimizer ") != line.npos && line.find("send") == line.npos) << line;
}

TEST_F(PlanCommand, TheCommandIsToBePasted) {
  const std::string command = json({"--program", "--prompt", "it's so", "--sample-every", "5", "--ranks", "1"})["command"];
  EXPECT_TRUE(command.starts_with("spillway train ")) << command;
  EXPECT_TRUE(command.ends_with(" --data PATH")) << command;
  for (const char* piece : {" --device-memory 16MiB", " --model gpt2-tiny", " --place-optimizer nvme", " --prompt 'it'\\''s so'"})
    EXPECT_NE(command.find(piece), std::string::npos) << piece << " in: " << command;
  for (const char* piece : {"--json", "--program"}) EXPECT_EQ(command.find(piece), std::string::npos) << piece << " in: " << command;
  EXPECT_NE(plan({}).out.find("\nto train like this:\n  spillway train "), std::string::npos);
}

// Planning must create nothing in the --nvme folder. A file made and removed again would still change the folder's modification time.
TEST_F(PlanCommand, WritesNothing) {
  namespace fs = std::filesystem;
  fs::create_directory(path("s"));
  const auto before = fs::last_write_time(path("s")) - std::chrono::hours(1);
  for (const char* nvme : {"s:1GiB", "s"}) {
    fs::last_write_time(path("s"), before);
    const Outcome outcome = run_app({"plan", "--model", "gpt2-tiny", "--device", "cpu", "--nvme", path(nvme), "--place-optimizer", "nvme"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(fs::last_write_time(path("s")), before) << nvme;
  }
}

TEST_F(PlanCommand, AFolderThatCannotBeIsRefused) {
  const Outcome outcome = run_app({"plan", "--model", "gpt2-tiny", "--nvme", path("no/such")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("[nvme] "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("PATH:SIZE"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace spillway::app::plan_test
