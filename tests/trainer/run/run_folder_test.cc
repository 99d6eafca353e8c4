// Tests the files in a run's folder: what happens if the disk is full, and how a metrics file of months of training is opened.
#include "trainer/run/run_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tests/support/file_limit.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/events/lines_backward.h"
#include "trainer/node/host.h"

namespace spillway::trainer::run_folder_test {
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
    const test::FileLimit full(16);  // with this limit the file can grow to the middle of its second line
    EXPECT_NE(open.metrics_line(line(2)).find("kept in memory"), std::string::npos);
    EXPECT_EQ(open.metrics_line(line(3)), "") << "said once";
  }
  EXPECT_NE(open.metrics_line(line(4)).find("complete again"), std::string::npos);
  EXPECT_EQ(metrics(), line(1) + "\n" + line(2) + "\n" + line(3) + "\n" + line(4) + "\n");
}

// If the disk is full, one message names all files of the run whose lines wait in memory. A second message follows when all these files
// are complete again.
TEST_F(FullDisk, FilesToWatchTheRunByWaitWithThem) {
  RunFolder open(run);
  open.open_metrics(0);
  EXPECT_TRUE(open.watch({.tensorboard = true, .metrics_csv = true}, 0, "{}").empty());
  EXPECT_EQ(open.metrics_line(line(1)), "");
  {
    const test::FileLimit full(16);
    const std::string said = open.metrics_line(line(2));
    for (const char* piece : {"metrics.jsonl, events.out.tfevents.", ", metrics.csv have to wait for room on the disk: ", "kept in memory"})
      EXPECT_NE(said.find(piece), std::string::npos) << said;
    EXPECT_EQ(open.sample(2, "In"), "") << "said once";
    EXPECT_EQ(open.metrics_line(line(3)), "") << "said once";
  }
  EXPECT_EQ(open.sample(3, "In"), "") << "the others wait for their next line";
  EXPECT_NE(open.metrics_line(line(4)).find("metrics.jsonl and the other files that had to wait are complete again"), std::string::npos);
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

// If the disk fills up, part of a line may be written. Readers ignore such a part, and the next start removes it.
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

// A metrics file that cannot be read is not treated as empty, since opening it to resume would then replace it and lose its lines.
TEST_F(FullDisk, MetricsThatCannotBeReadStay) {
  RunFolder open(run);
  std::filesystem::create_directory(run / "metrics.jsonl");  // reading a folder as a file fails even for root
  EXPECT_THROW(open.open_metrics(10), Error);
  EXPECT_TRUE(std::filesystem::is_directory(run / "metrics.jsonl"));
}

TEST_F(FullDisk, WhatAKillLeftHalfReplacedGoesAtTheNextStart) {
  std::filesystem::create_directories(run);
  for (const char* name : {"config.json.partial-77", "contents.json.partial-12-1", "notes.partial"}) std::ofstream(run / name) << "half";
  RunFolder open(run);
  open.write_config("{}");
  open.write_contents("{}");
  EXPECT_FALSE(std::filesystem::exists(run / "config.json.partial-77"));
  EXPECT_FALSE(std::filesystem::exists(run / "contents.json.partial-12-1"));
  EXPECT_TRUE(std::filesystem::exists(run / "notes.partial"));
}

// The test writes a metrics file as long as after months of training. Lines after the resumed step are removed. Lines far before it are
// not read.
TEST(Metrics, AreOpenedFromTheirEnd) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::filesystem::create_directories(run);
  constexpr int kLines = 5000;
  std::string text = "{\"step\":\"one\"}\nno line at all\n";  // these lines stay, since only the end of the file is read
  for (int step = 2; step <= kLines; ++step) text += line(step) + "\n";
  std::ofstream(run / "metrics.jsonl") << text << "{\"step\":50";
  const auto metrics = [&] { return *read_whole(run / "metrics.jsonl"); };
  for (const int step : {kLines + 10, kLines, kLines - 1, 4000, 1000, 2}) {
    RunFolder open(run);
    EXPECT_EQ(open.open_metrics(step), std::min(step, kLines));
    EXPECT_EQ(metrics(), text.substr(0, text.find(line(std::min(step, kLines) + 1)))) << step;
  }
  RunFolder open(run);
  EXPECT_EQ(open.open_metrics(0), 0);
  EXPECT_EQ(metrics(), "");
}

// Reading a file backward finds lines that are longer than any of a run's, that end at the border of a read buffer, or that have no
// newline.
TEST(Metrics, LinesOfAnyLengthAreFoundBackward) {
  const TemporaryFolder folder;
  for (const size_t length : {size_t{0}, size_t{65534}, size_t{65535}, size_t{65536}, size_t{70000}, size_t{2 << 20}}) {
    const std::string longest(length, 'x'), text = line(1) + "\n" + longest + "\n" + line(2) + "\n" + longest;
    std::ofstream(folder.path() / "f") << text;
    const data::File file = data::File::open(folder.path() / "f");
    LinesBackward lines(file);
    std::vector<std::string> got;
    i64 end = file.size_bytes();
    for (LinesBackward::Line one; lines.next(one); end = one.begin) {
      EXPECT_EQ(one.end, end);
      EXPECT_EQ(one.ends, text[static_cast<size_t>(one.end) - 1] == '\n');
      got.push_back(one.text);
    }
    EXPECT_EQ(end, 0);
    const std::string shown = length > (1 << 20) ? "" : longest;
    std::vector<std::string> want{line(2), shown, line(1)};
    if (length > 0) want.insert(want.begin(), shown);
    EXPECT_EQ(got, want) << length;
  }
}

TEST(Metrics, AValidationIsAddedToTheLastLine) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  RunFolder open(run);
  open.open_metrics(0);
  ASSERT_TRUE(open.watch({.tensorboard = false, .metrics_csv = true}, 0, "{}").empty());
  for (int step = 1; step <= 3; ++step) open.metrics_line("{\"step\": " + std::to_string(step) + ", \"loss\": 2.5}");
  EXPECT_EQ(open.add_validation(3, R"({"step": 3, "validation_loss": 1.5})"), "");
  EXPECT_EQ(*read_whole(run / "metrics.jsonl"),
            "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": 2.5}\n{\"step\": 3, \"loss\": 2.5,\"validation_loss\":1.5}\n");
  EXPECT_EQ(open.add_validation(2, R"({"step": 2, "validation_loss": 1.5})"), "") << "no longer the last: nothing is changed";
  open.metrics_line(R"({"step": 4, "loss": 2.25})");
  const std::string csv = *read_whole(run / "metrics.csv");
  EXPECT_EQ(std::ranges::count(csv, '\n'), 5);
  std::filesystem::remove(run / "metrics.csv");
  Watching made(run, {.tensorboard = false, .metrics_csv = true}, 4, "{}");
  EXPECT_EQ(*read_whole(run / "metrics.csv"), csv) << "made from the lines, it is the same";
  Watching back(run, {.tensorboard = false, .metrics_csv = true}, 2, "{}");
  EXPECT_EQ(*read_whole(run / "metrics.csv"), csv.substr(0, csv.find("\n3,") + 1)) << "a start behind step 2 goes on from its row";
}

}  // namespace
}  // namespace spillway::trainer::run_folder_test
