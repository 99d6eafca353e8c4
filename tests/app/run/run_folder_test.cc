// A run's folder on days when the disk is full.
#include "app/run/run_folder.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"
#include "tests/app/support_app.h"
#include "tests/support/file_limit.h"

namespace spillway::app::run_folder_test {
namespace {

std::string line(int step) { return "{\"step\":" + std::to_string(step) + "}"; }

struct FullDisk : testing::Test {
  TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::string metrics() const { return *read_whole(run / "metrics.jsonl"); }
};

TEST_F(FullDisk, MetricsWaitInMemoryUntilThereIsRoom) {
  RunFolder open(run);
  open.open_metrics(0);
  EXPECT_EQ(open.metrics_line(line(1)), "");
  {
    const test::FileLimit full(16);  // in the middle of the second line
    EXPECT_NE(open.metrics_line(line(2)).find("its lines are kept in memory"), std::string::npos);
    EXPECT_EQ(open.metrics_line(line(3)), "") << "said once";
  }
  EXPECT_NE(open.metrics_line(line(4)).find("whole again"), std::string::npos);
  EXPECT_EQ(metrics(), line(1) + "\n" + line(2) + "\n" + line(3) + "\n" + line(4) + "\n");
}

// One line tells of all files, when the first of them begins to wait and when the last one is whole.
TEST_F(FullDisk, FilesToWatchTheRunByWaitWithThem) {
  RunFolder open(run);
  open.open_metrics(0);
  EXPECT_TRUE(open.watch({.tensorboard = true, .metrics_csv = true}, 0, "{}").empty());
  EXPECT_EQ(open.metrics_line(line(1)), "");
  {
    const test::FileLimit full(16);
    const std::string said = open.metrics_line(line(2));
    for (const char* piece : {"metrics.jsonl, events.out.tfevents.", ", metrics.csv have to wait: ", "kept in memory"})
      EXPECT_NE(said.find(piece), std::string::npos) << said;
    EXPECT_EQ(open.sample(2, "In"), "") << "said once";
    EXPECT_EQ(open.metrics_line(line(3)), "") << "said once";
  }
  EXPECT_EQ(open.sample(3, "In"), "") << "the others wait for their next line";
  EXPECT_NE(open.metrics_line(line(4)).find("metrics.jsonl is whole again"), std::string::npos);
  EXPECT_EQ(metrics(), line(1) + "\n" + line(2) + "\n" + line(3) + "\n" + line(4) + "\n");
}

TEST_F(FullDisk, WhatWaitsAtTheEndIsTriedOnceMore) {
  std::optional<RunFolder> open(std::in_place, run);
  open->open_metrics(0);
  {
    const test::FileLimit full(1);
    EXPECT_NE(open->metrics_line(line(1)), "");
  }
  open.reset();
  EXPECT_EQ(metrics(), line(1) + "\n");
}

// The half of a line that the disk took is none to whoever reads the file, the next start drops it.
TEST_F(FullDisk, APartOfALineIsNone) {
  std::optional<RunFolder> open(std::in_place, run);
  open->open_metrics(0);
  EXPECT_EQ(open->metrics_line(line(1)), "");
  {
    const test::FileLimit full(16);
    EXPECT_NE(open->metrics_line(line(2)), "");
    open.reset();
    EXPECT_EQ(metrics().size(), 16u);
  }
  RunFolder again(run);
  EXPECT_EQ(again.open_metrics(10), 1);
  EXPECT_EQ(metrics(), line(1) + "\n");
}

// Its lines are not taken for none, since what is kept of them replaces the file.
TEST_F(FullDisk, MetricsThatCannotBeReadStay) {
  RunFolder open(run);
  std::filesystem::create_directory(run / "metrics.jsonl");  // root may read any file; nobody reads a folder
  EXPECT_THROW(open.open_metrics(10), Error);
  EXPECT_TRUE(std::filesystem::is_directory(run / "metrics.jsonl"));
}

TEST_F(FullDisk, WhatAKillLeftHalfReplacedGoesAtTheNextStart) {
  std::filesystem::create_directories(run);
  for (const char* name : {"config.json.77.new", "metrics.jsonl.1234.new", "notes.new"}) std::ofstream(run / name) << "half";
  const RunFolder open(run);
  EXPECT_FALSE(std::filesystem::exists(run / "config.json.77.new"));
  EXPECT_FALSE(std::filesystem::exists(run / "metrics.jsonl.1234.new"));
  EXPECT_TRUE(std::filesystem::exists(run / "notes.new"));
}

}  // namespace
}  // namespace spillway::app::run_folder_test
