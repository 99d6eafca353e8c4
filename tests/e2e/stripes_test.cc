// Tests two --nvme paths: measured speeds set their shares, the files keep them, the log names them, and no number depends on them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <cstdlib>
#include <regex>

#include "tests/e2e/support_nvme_run.h"
#include "trainer/node/calibration.h"

namespace spillway::test::stripes_test {
namespace {

namespace fs = std::filesystem;

struct NvmeStripes : NvmeRun {
  // Stores rates in GB/s as if `spillway bench disk` had measured them.
  void measured(double first, double second) {
    const fs::path cache = at / "cache";
    at.before_start([cache] { ::setenv("XDG_CACHE_HOME", cache.c_str(), 1); });
    const trainer::Host host{.environment = [&](const char* name) {
      return std::string_view(name) == "XDG_CACHE_HOME" ? std::optional(cache.string()) : std::nullopt;
    }};
    std::vector<trainer::BenchRow> rows;
    for (const auto& [path, rate] : {std::pair("a", first), std::pair("b", second)}) {
      fs::create_directory(at / path);
      rows.push_back({.name = "disk.mixed", .path = fs::canonical(at / path), .value = rate * 1e9, .unit = "bytes/s"});
    }
    trainer::save_bench_rows(rows, host);
  }
  Args on_two(const std::string& out) const {
    Args args = on_nvme(out, "none", "a");
    args.insert(args.end(), {"--nvme", "b"});
    return args;
  }
  Finished killed_at_step_5(const std::string& out) const {
    return at.spillway_until(
        on_two(out), [&] { return at.metrics(out).size() >= 5; }, SIGKILL);
  }
  // Returns the ratio of the two files' sizes. The first file's tables count too, but are small against the data.
  double ratio() const { return static_cast<double>(fs::file_size(store("a"))) / static_cast<double>(fs::file_size(store("b"))); }
};
using NvmeStripesMore = NvmeStripes;

TEST_F(NvmeStripesMore, FollowTheMeasuredSpeedAndChangeNoBit) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  measured(1.5, 0.5);
  const Finished killed = killed_at_step_5("run");
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  EXPECT_TRUE(mentions(killed.err, "shares 3:1 (bench measured 1.50, 0.50 GB/s), ")) << killed.err;
  EXPECT_NEAR(ratio(), 3, 0.2);
  measured(1.0, 2.0);  // the measured rates change, but a restart keeps the shares of its files
  const Finished rest = at.spillway(on_two("run"));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "from the state on nvme")) << rest.err;
  EXPECT_TRUE(mentions(rest.err, "shares 3:1 (as the files are striped), ")) << rest.err;
  expect_same_run("run", "straight");
  const Finished other = killed_at_step_5("other");
  EXPECT_TRUE(mentions(other.err, "shares 1:2 (bench measured 1.00, 2.00 GB/s), ")) << other.err;
  EXPECT_NEAR(ratio(), 0.5, 0.05);
}

TEST_F(NvmeStripes, OnTwoFilesystemsAreMeasured) {
  for (const char* path : {"a", "b"}) fs::create_directory(at / path);
  if (::mount("tmpfs", (at / "b").c_str(), "tmpfs", 0, "size=256m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  const fs::path nothing = at / "nothing";
  at.before_start([nothing] { ::setenv("XDG_CACHE_HOME", nothing.c_str(), 1); });
  const Finished f = at.spillway(on_two("run"));
  ::umount((at / "b").c_str());
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(std::regex_search(f.err, std::regex("shares \\d+:\\d+ \\(measured \\d+\\.\\d+, \\d+\\.\\d+ GB/s\\), "))) << f.err;
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  expect_same_run("run", "straight");
}

TEST_F(NvmeStripes, OnOneFilesystemAreEqual) {
  fs::create_directory(at / "a");
  fs::create_directory(at / "b");
  const fs::path nothing = at / "nothing";
  at.before_start([nothing] { ::setenv("XDG_CACHE_HOME", nothing.c_str(), 1); });
  const Finished f = killed_at_step_5("run");
  EXPECT_TRUE(mentions(f.err, "shares 1:1 (one filesystem), ")) << f.err;
  EXPECT_NEAR(ratio(), 1, 0.1);
}

}  // namespace
}  // namespace spillway::test::stripes_test
