// Tests how the program behaves if the kernel, a limit or the disk under --nvme fails. The real program on the real kernel ends with the
// exit status that CLI.md documents and one line with the cause, and gives bitwise the same results in the end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "tests/e2e/support_kernel.h"
#include "tests/e2e/support_nvme_run.h"

namespace spillway::test::bad_days_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_with(const std::string& text, const std::string& what) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (mentions(line, what)) found.push_back(line);
  }
  return found;
}

struct BadDays : NvmeRun {
  // Returns a command line that saves a checkpoint every four steps.
  static Args saving(const std::string& out, const std::string& nvme = "scratch") {
    Args args = on_nvme(out, "none", nvme);
    *std::find(args.begin(), args.end(), "100000") = "4";
    return args;
  }
  // Checks that the run continues from its checkpoint once the fault is gone, and ends with bitwise the results of an undisturbed run.
  void expect_mended_by_a_restart(const std::string& nvme = "scratch") {
    at.before_start([] {});
    const Finished rest = at.spillway(saving("run", nvme));
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_TRUE(mentions(rest.err, "from the last checkpoint")) << rest.err;
    ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
    expect_same_run("run", "straight");
  }
  bool saved() const { return fs::exists(at / "run/checkpoints/step-00000004"); }
};
using BadDaysMore = BadDays;

// Checks for exit status 5 and a message that names the file, the offset and the errno.
void expect_io_failure(const Finished& f, int error_number) {
  EXPECT_EQ(f.status, 5) << f.err;
  for (const std::string& part : {std::string("/tiles"), std::string("offset "), "(errno " + std::to_string(error_number) + ")"}) {
    EXPECT_TRUE(mentions(f.err, part)) << part << " in " << f.err;
  }
}

// Lists errnos of a refusal by seccomp, of an old kernel, and of a lock limit that is used up.
constexpr std::pair<int, const char*> kRefusals[] = {
    {EPERM, "EPERM: seccomp or kernel.io_uring_disabled"}, {ENOSYS, "ENOSYS: the kernel"}, {ENOMEM, "ENOMEM: the memlock limit"}};

TEST_F(BadDays, IoUringRefusedTheRunGoesOnWithPreadAndSaysWhy) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  for (const auto& [error_number, cause] : kRefusals) {
    at.before_start([error_number] { forbid(SYS_io_uring_setup, error_number); });
    const std::string out = "run-" + std::to_string(error_number);
    const Finished f = at.spillway(on_nvme(out, "none"));
    EXPECT_EQ(f.status, 0) << f.err;
    const auto lines = lines_with(f.err, "refused io_uring");
    ASSERT_EQ(lines.size(), 1u) << f.err;
    EXPECT_TRUE(mentions(lines[0], std::string("refused io_uring (") + cause)) << lines[0];
    expect_same_run(out, "straight");
  }
}

TEST_F(BadDaysMore, WithoutDirectIoThePageCacheStandsBetweenAndTheLogSaysSo) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  at.before_start([] { refuse_direct_io(); });
  const Finished f = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(lines_with(f.err, "scratch through the page cache (").size(), 1u) << f.err;
  EXPECT_EQ(lines_with(f.err, " refuses O_DIRECT)").size(), 1u) << f.err;
  expect_same_run("run", "straight");
}

TEST_F(BadDays, IoUringDemandedAndRefusedIsAnErrorThatNamesTheCure) {
  for (const auto& [error_number, cause] : kRefusals) {
    at.before_start([error_number] { forbid(SYS_io_uring_setup, error_number); });
    Args args = on_nvme("run", "none");
    args.insert(args.end(), {"--io-engine", "io_uring"});
    const Finished f = at.spillway(args);
    EXPECT_EQ(f.status, 5) << f.err;
    EXPECT_TRUE(mentions(f.err, cause) && mentions(f.err, "--io-engine pread")) << f.err;
    EXPECT_TRUE(store().empty()) << "nothing stays behind";
  }
}

TEST_F(BadDaysMore, LockedMemoryOf64KiBChangesNothing) {
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  at.before_start([] { limit_locked_memory(64 << 10); });
  const Finished f = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(lines_with(f.err, "io_uring").size(), 1u) << f.err;  // one line says that io_uring is used, or why it is refused
  expect_same_run("run", "straight");
}

TEST_F(BadDays, ADiskThatVanishesLeavesTheLastCheckpoint) {
  LoopDisk disk(at / "image", at / "disk", 96 << 20);
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  bool gone = false;
  const Finished f = at.spillway_until(
      saving("run", "disk"),
      [&] {
        if (!gone && saved()) disk.vanish(), gone = true;
        return false;
      },
      SIGKILL);
  ASSERT_TRUE(disk.why_not().empty()) << disk.why_not();
  expect_io_failure(f, EIO);
  EXPECT_TRUE(mentions(f.err, "the drive failed")) << f.err;
  expect_mended_by_a_restart();
}

TEST_F(BadDays, AStoreThatIsTruncatedUnderTheRun) {
  bool cut = false;
  const Finished f = at.spillway_until(
      saving("run"),
      [&] {
        if (!cut && saved()) fs::resize_file(store(), 65536), cut = true;
        return false;
      },
      SIGKILL);
  EXPECT_TRUE(cut);
  EXPECT_EQ(f.status, 5) << f.err;
  EXPECT_TRUE(mentions(f.err, "/tiles") && mentions(f.err, "offset ")) << f.err;
  expect_mended_by_a_restart();
}

// The store's file ends at 20 MiB. The bytes beyond 19 MiB are accessed before the first step ends, whatever order the plan has.
constexpr i64 kNearTheEnd = 19 << 20;

TEST_F(BadDays, AnErrorOfTheDriveNamesFileOffsetAndErrno) {
  for (const int error_number : {EIO, ENODEV, EREMOTEIO}) {
    at.before_start([error_number] { fail_beyond(kNearTheEnd, error_number); });
    const Finished f = at.spillway(on_nvme("run-" + std::to_string(error_number), "none"));
    expect_io_failure(f, error_number);
  }
}

// Shows that a run reports a disk that fills up during a step, as it may on a filesystem that cannot reserve blocks, and that the run goes
// on once there is room. The kernel returns ENOSPC near the store's end, so that it happens at the same write every time.
TEST_F(BadDays, ADiskThatFillsUnderAStepSaysSoAndTheRunGoesOnOnceThereIsRoom) {
  at.before_start([] {
    forbid(SYS_fallocate, EOPNOTSUPP);
    fail_beyond(kNearTheEnd, ENOSPC);
  });
  const Finished f = at.spillway(on_nvme("run", "none"));
  expect_io_failure(f, ENOSPC);
  EXPECT_TRUE(mentions(f.err, "free disk space")) << f.err;
  at.before_start([] { forbid(SYS_fallocate, EOPNOTSUPP); });
  const Finished rest = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(rest.status, 0) << rest.err;
  ASSERT_EQ(at.spillway(on_nvme("straight", "none")).status, 0);
  expect_same_run("run", "straight");
}

// Shows that a disk without room for both checkpoints and the nvme tier is refused, although it has room for either of them alone.
TEST_F(BadDays, CheckpointsHaveNoRoomBesideTheTierOnTheSameDisk) {
  fs::create_directory(at / "small");
  if (::mount("tmpfs", (at / "small").c_str(), "tmpfs", 0, "size=42m") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  const Finished both = at.spillway(on_nvme("small/run", "none", "small"));
  EXPECT_EQ(both.status, 3) << both.err;
  EXPECT_TRUE(mentions(both.err, "[checkpoint] expected room for 3 checkpoints") && mentions(both.err, "of this run's nvme tier"))
      << both.err;
  EXPECT_TRUE(fs::is_empty(at / "small")) << "nothing was touched";
  EXPECT_EQ(at.spillway(on_nvme("small/run", "none")).status, 0);
  ::umount((at / "small").c_str());
}

TEST_F(BadDays, ALimitOnFileSizesRefusesTheStore) {
  at.before_start([] {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  });
  const Finished f = at.spillway(on_nvme("run", "none"));
  EXPECT_EQ(f.status, 3) << f.err;
  EXPECT_TRUE(mentions(f.err, "ulimit -f")) << f.err;
}

}  // namespace
}  // namespace spillway::test::bad_days_test
