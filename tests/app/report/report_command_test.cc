// Tests the commands report and top: what they refuse, what they write, and the page and records of a real run. Takes 2 s.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/report/top_view.h"
#include "tests/app/support_app.h"
#include "trainer/node/host.h"
#include "trainer/record/recorder.h"

namespace spillway::app::report_command_test {
namespace {

using testing::HasSubstr;

class ReportCommandTest : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  // Trains a tiny model for ten steps into the folder "run".
  void train(const std::vector<std::string>& more = {}) const {
    folder_.write("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
    std::vector<std::string> args = {"train",
                                     "--model",
                                     "gpt2-tiny",
                                     "--data",
                                     at("text.txt"),
                                     "--sequence-length",
                                     "16",
                                     "--steps",
                                     "10",
                                     "--threads",
                                     "1",
                                     "--device-memory",
                                     "64MiB",
                                     "--host-memory",
                                     "64MiB",
                                     "--out",
                                     at("run"),
                                     "--validation-fraction",
                                     "0.1",
                                     "--validation-steps",
                                     "1"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_app(args);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  const TemporaryFolder folder_;
};

TEST_F(ReportCommandTest, WhatIsNoRunIsRefused) {
  const Outcome missing = run_app({"report", at("missing")});
  EXPECT_EQ(missing.status, 4);
  EXPECT_THAT(missing.err, HasSubstr("[report] expected a run folder, got " + at("missing") + ", "));
  const Outcome empty = run_app({"report", folder_.path().string()});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("neither metrics.jsonl nor a lock"));
  EXPECT_EQ(run_app({"report"}).status, 2);
  EXPECT_EQ(run_app({"top", at("missing")}).status, 4);
  folder_.write("run/metrics.jsonl", "");
  const Outcome named = run_app({"report", at("run"), "--out", at("page.txt")});
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.err, HasSubstr("[--out] expected a name that ends in .html"));
  const Outcome nowhere = run_app({"report", at("run"), "--out", at("no/such/folder/x.html")});
  folder_.write("notes.html", "<html>a chapter</html>");
  const Outcome other = run_app({"report", at("run"), "--out", at("notes.html")});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("[--out] expected a new file"));
  EXPECT_EQ(read_whole(at("notes.html")), "<html>a chapter</html>");
  for (int again = 0; again < 2; ++again) EXPECT_EQ(run_app({"report", at("run"), "--out", at("new.html")}).status, 0);
  EXPECT_NE(nowhere.status, 0);
  EXPECT_THAT(nowhere.err, HasSubstr("no/such/folder"));
}

TEST_F(ReportCommandTest, OfARealRun) {
  train();
  const Outcome made = run_app({"report", at("run"), "--json"});
  ASSERT_EQ(made.status, 0) << made.err;
  const auto all = nlohmann::json::parse(made.out);
  EXPECT_EQ(all["out"], at("run/report.html"));
  EXPECT_TRUE(all["runs"][0]["notes"].empty()) << all["runs"][0]["notes"];
  std::ifstream metrics(at("run/metrics.jsonl"));
  std::string last;
  for (std::string line; std::getline(metrics, line);) last = line;
  const auto row = nlohmann::json::parse(last);
  EXPECT_EQ(all["runs"][0]["loss"]["value"], row["loss"]);
  EXPECT_EQ(all["runs"][0]["validation_loss"]["value"], row["validation_loss"]);
  const std::string page = read_whole(at("run/report.html")).value_or("");
  EXPECT_EQ(all["bytes"], page.size());
  for (const char* part : {"Progress", "Memory by tier", "Lanes of a step", "Step 3, lane by lane", "Plan and measurement",
                           "What would help", "The run is finished"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_FALSE(std::filesystem::exists(at("run/report.html.new")));
}

// Reports on a run that is a pipeline of two stages, whose ranks are threads of this process.
TEST_F(ReportCommandTest, OfAPipeline) {
  train({"--ranks", "2", "--pipeline-stages", "2", "--communicator", "local", "--gradient-accumulation-steps", "4"});
  ASSERT_EQ(run_app({"report", at("run")}).status, 0);
  const std::string page = read_whole(at("run/report.html")).value_or("");
  EXPECT_THAT(page, HasSubstr("The pipeline"));
  EXPECT_THAT(page, HasSubstr(">rank 1</text>"));
  const auto timeline = read_timeline(at("run"));
  ASSERT_TRUE(timeline);
  EXPECT_EQ(timeline->step, 3);
  ASSERT_EQ(timeline->ranks.size(), 2u);
  for (const RankTimeline& rank : timeline->ranks) {
    for (const char* kind : {"forward", "backward"}) {
      i64 micro_batches = 0;
      for (const Bar& bar : rank.bars) micro_batches += bar.kind == kind ? bar.count : 0;
      EXPECT_GE(micro_batches, 4) << kind;
    }
  }
}

TEST_F(ReportCommandTest, ThePlanSurvivesItsFile) {
  train();
  const auto plan = read_run_plan(at("run"));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->model, "gpt2-tiny");
  EXPECT_EQ(plan->parameters, 858'880);
  EXPECT_EQ(plan->budget[0], 64 * kMiB);
  EXPECT_GT(plan->total[0], 0);
  EXPECT_GT(plan->step_s, 0);
  EXPECT_EQ(to_json(*plan), read_whole(run_plan_file(at("run"))).value_or(""));
}

TEST_F(ReportCommandTest, APlanAsAPage) {
  const Outcome made =
      run_app({"plan", "--model", "gpt2-tiny", "--device-memory", "64MiB", "--host-memory", "64MiB", "--html", at("plan.html")});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string page = read_whole(at("plan.html")).value_or("");
  for (const char* part : {"Plan of gpt2-tiny", "To train like this", "as simulated", "optimizer state"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_EQ(run_app({"plan", "--model", "gpt2-tiny", "--html", "x.txt"}).status, 2);
}

TEST_F(ReportCommandTest, TopOfAFinishedRunIsOneLine) {
  train();
  const Outcome seen = run_app({"top", at("run")});
  EXPECT_EQ(seen.status, 0);
  EXPECT_THAT(seen.out, HasSubstr("finished step 10/10  loss "));
  EXPECT_EQ(std::ranges::count(seen.out, '\n'), 1);
  const std::vector<std::string> screen = top_screen(look_at(at("run")), 80);
  ASSERT_GT(screen.size(), 8u);
  EXPECT_THAT(screen[0], HasSubstr("finished  step 10 of 10"));
  EXPECT_THAT(screen[1], HasSubstr("100 %  done"));
}

TEST(Top, TheNextSave) {
  TopView view;
  view.status.step = 130;
  view.status.steps = 400;
  view.save_every = "50";
  EXPECT_EQ(next_save(view), "at step 150");
  view.status.step = 360;
  EXPECT_EQ(next_save(view), "at the end, step 400");
  view.save_every = "30m";
  view.since_start = 3600;
  view.status.checkpoint = {"c", 100, 600};
  EXPECT_EQ(next_save(view), "in 20 min 00 s");
  view.status.left_s = 60;
  EXPECT_THAT(next_save(view), HasSubstr("at the end, in "));
  view.save_every = "<script>";
  EXPECT_EQ(next_save(view), "");
}

}  // namespace
}  // namespace spillway::app::report_command_test
