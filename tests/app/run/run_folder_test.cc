// A run's folder on days when the disk is full.
#include "app/run/run_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <optional>

#include "tests/app/support_app.h"

namespace spillway::app::run_folder_test {
namespace {

// ulimit -f for this process: what a file would grow beyond fails with EFBIG, as a full disk does with ENOSPC.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

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
    const FileLimit full(16);  // in the middle of the second line
    EXPECT_NE(open.metrics_line(line(2)).find("its lines are kept in memory"), std::string::npos);
    EXPECT_EQ(open.metrics_line(line(3)), "") << "said once";
  }
  EXPECT_NE(open.metrics_line(line(4)).find("whole again"), std::string::npos);
  EXPECT_EQ(metrics(), line(1) + "\n" + line(2) + "\n" + line(3) + "\n" + line(4) + "\n");
}

TEST_F(FullDisk, WhatWaitsAtTheEndIsTriedOnceMore) {
  std::optional<RunFolder> open(std::in_place, run);
  open->open_metrics(0);
  {
    const FileLimit full(1);
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
    const FileLimit full(16);
    EXPECT_NE(open->metrics_line(line(2)), "");
    open.reset();
    EXPECT_EQ(metrics().size(), 16u);
  }
  RunFolder again(run);
  EXPECT_EQ(again.open_metrics(10), 1);
  EXPECT_EQ(metrics(), line(1) + "\n");
}

}  // namespace
}  // namespace spillway::app::run_folder_test
