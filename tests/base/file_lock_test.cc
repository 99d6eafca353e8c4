#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "tests/support/forbid.h"
#include "tests/support/kill_at.h"
#include "tests/support/temporary_folder.h"

namespace spillway::file_lock_test {
namespace {

namespace fs = std::filesystem;

struct Locks : testing::Test {
  const test::TemporaryFolder folder;
  const fs::path file = folder.write("lock", "x");

  // Tries to take the lock in another process, which then exits. Returns 0 if it could not take it, 1 if it took it
  // by flock, 2 if it took it without flock. With `no_flock` the system call fails as on a filesystem without flock.
  int another_takes(bool no_flock, FileLock::Kind kind = FileLock::Kind::exclusive) const {
    const pid_t child = ::fork();
    if (child == 0) {
      if (no_flock) test::forbid(SYS_flock, ENOSYS);
      const auto lock = FileLock::take(::open(file.c_str(), O_RDWR | O_CLOEXEC), file, kind);
      ::_exit(!lock ? 0 : lock->why_not_flock().empty() ? 1 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  void write_holder(const std::string& text) const { std::ofstream(folder / "lock.holder") << text; }
  void age_holder(std::chrono::seconds age) const { fs::last_write_time(folder / "lock.holder", fs::file_time_type::clock::now() - age); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder.path())) all.push_back(entry.path().filename());
    std::ranges::sort(all);
    return all;
  }
};

TEST_F(Locks, FlockWhereThereIsOne) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  {
    const auto lock = FileLock::take(descriptor, file);
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock->why_not_flock(), "");
    EXPECT_EQ(another_takes(false), 0);
    EXPECT_EQ(another_takes(false, FileLock::Kind::look), 0);
  }
  ::close(descriptor);
  EXPECT_EQ(another_takes(false), 1);
  EXPECT_FALSE(fs::exists(folder / "lock.holder"));
}

TEST_F(Locks, AFileBesideWhereThereIsNone) {
  EXPECT_EQ(another_takes(true, FileLock::Kind::look), 2);
  EXPECT_FALSE(fs::exists(folder / "lock.holder"));
  EXPECT_EQ(another_takes(true), 2);
  ASSERT_TRUE(fs::exists(folder / "lock.holder")) << "the process died with it";
  EXPECT_EQ(another_takes(true), 2) << "a dead process of this host holds nothing";
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  // The lock file first names this process, as a holder would write it. Later it names an earlier process with the same process id.
  std::ifstream stat("/proc/self/stat");
  std::string line((std::istreambuf_iterator<char>(stat)), {});
  line = line.substr(line.rfind(')') + 2);
  for (int field = 3; field < 22; ++field) line = line.substr(line.find(' ') + 1);
  const std::string ticks = line.substr(0, line.find(' '));
  write_holder(fmt::format("{} {} {} - -\n", host, ::getpid(), ticks));
  EXPECT_EQ(another_takes(true), 0);
  EXPECT_EQ(another_takes(true, FileLock::Kind::look), 0);
  write_holder(fmt::format("{} {} {} - -\n", host, ::getpid(), ticks + "1"));
  EXPECT_EQ(another_takes(true), 2);
}

TEST_F(Locks, AnotherHostsHolderIsAliveUnlessItIsAnEarlierLifeOfThisJob) {
  write_holder("elsewhere 17 1000 - -\n");
  EXPECT_EQ(another_takes(true), 0);
  ::setenv("SLURM_JOB_ID", "77", 1);
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  write_holder("elsewhere 17 1000 76 -\n");
  EXPECT_EQ(another_takes(true), 0);
  write_holder("elsewhere 17 1000 77 1\n");
  EXPECT_EQ(another_takes(true), 0);
  write_holder("elsewhere 17 1000 77 -\n");
  EXPECT_EQ(another_takes(true), 2);
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
}

using KilledLocksRelease = Locks;

TEST_F(KilledLocksRelease, WhoDiesWhileTakingItHoldsNothing) {
  if (!test::kCanKillAt) GTEST_SKIP() << "x86-64 without sanitizers alone";
  int deaths = 0;
  const auto take = [&] {
    test::forbid(SYS_flock, ENOSYS);
    FileLock::take(::open(file.c_str(), O_RDWR | O_CLOEXEC), file);
  };
  for (test::End end = test::End::killed; end == test::End::killed; ++deaths) {
    end = test::end_of(deaths + 1, take);
    ASSERT_NE(end, test::End::failed);
    EXPECT_EQ(another_takes(true), 2) << "death at call " << deaths + 1;
    EXPECT_EQ(names(), (std::vector<std::string>{"lock", "lock.holder"})) << "death at call " << deaths + 1;
  }
  EXPECT_GE(deaths, 8);
}

// Earlier versions created the lock file empty and wrote the holder into it later. A file without a holder thus counts for a minute.
TEST_F(Locks, AFileThatNamesNobodyCountsForAMinute) {
  for (const char* text : {"", "here 17", "here 17 1000 - -", "host n1, process 3\n"}) {
    write_holder(text);
    EXPECT_EQ(another_takes(true), 0) << text;
    EXPECT_EQ(another_takes(true, FileLock::Kind::look), 0) << text;
    EXPECT_EQ(FileLock::holder(file), "") << text;
    age_holder(std::chrono::seconds(50));
    EXPECT_EQ(another_takes(true), 0) << text;
    age_holder(std::chrono::seconds(70));
    EXPECT_EQ(another_takes(true, FileLock::Kind::look), 2) << text;
    EXPECT_EQ(another_takes(true), 2) << text;
  }
}

TEST_F(Locks, TheHolderIsTheOneOfTheFileBesideOrElseWhoSigned) {
  std::ofstream(file) << "not signed\n";
  EXPECT_EQ(FileLock::holder(file), "");
  std::ofstream(file) << "host elsewhere, process 3\n";
  EXPECT_EQ(FileLock::holder(file), "host elsewhere, process 3");
  write_holder("n1 17 1000 - -\n");
  EXPECT_EQ(FileLock::holder(file), "host n1, process 17");
  EXPECT_EQ(another_takes(true), 0);
  fs::remove(folder / "lock.holder");
  ASSERT_EQ(another_takes(true), 2);
  EXPECT_EQ(FileLock::holder(file), "host elsewhere, process 3") << "the one of the file beside is dead";
}

TEST_F(Locks, AStoppedHolderIsNamedAsSuch) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const auto lock = FileLock::take(descriptor, file);
  ASSERT_TRUE(lock);
  const pid_t child = ::fork();
  if (child == 0) {
    lock->sign(descriptor, file);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(
      FileLock::holder(file).ends_with(fmt::format("process {}, which is stopped (kill -CONT {} resumes the process)", child, child)));
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(FileLock::holder(file).ends_with(fmt::format("process {}", child)));
  ::close(descriptor);
}

}  // namespace
}  // namespace spillway::file_lock_test
