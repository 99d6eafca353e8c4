#include "offload/scratch_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "offload/scratch_file.h"
#include "tests/offload/support_files.h"
#include "tests/support/forbid.h"

namespace spillway::offload::scratch_folder_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

// Runs a process that owns a scratch folder with a file in it until the process is killed.
class OtherRun {
 public:
  OtherRun(const std::filesystem::path& scratch, const std::string& run_id) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ == 0) {
      try {
        const ScratchFolder folder(scratch, run_id);
        const ScratchFile file = ScratchFile::create(folder.path() / "state", kMiB);
        if (::write(ready[1], "x", 1) != 1) ::_exit(2);
        for (;;) ::pause();
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(ready[1]);
    char byte = 0;
    owns_ = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~OtherRun() { kill(); }
  bool owns() const { return owns_; }
  int process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  pid_t process_ = -1;
  bool owns_ = false;
};

TEST(ScratchFolder, LivesAndGoesWithItsOwner) {
  TemporaryFolder scratch;
  {
    ScratchFolder folder(scratch.path(), "a1");
    EXPECT_EQ(folder.path(), scratch / "spillway-a1");
    EXPECT_FALSE(folder.taken_over());
    std::ofstream(folder.path() / "left") << "behind";
    const ScratchFolder moved = std::move(folder);
    EXPECT_TRUE(list_orphans(scratch.path()).empty());
  }
  EXPECT_TRUE(scratch.empty());
}

TEST(ScratchFolder, TwoOwnersCannotShareAFolder) {
  TemporaryFolder scratch;
  const ScratchFolder first(scratch.path(), "a1");
  const auto error = error_of([&] { ScratchFolder(scratch.path(), "a1"); });
  EXPECT_EQ(error.code, ErrorCode::usage);
  for (const std::string& part :
       {std::string("in use"), "pid=" + std::to_string(::getpid()), std::string("run=a1"), std::string("host=")}) {
    EXPECT_TRUE(error.says(part)) << error.text;
  }
  const ScratchFolder second(scratch.path(), "a2");
  EXPECT_TRUE(std::filesystem::exists(first.path()));
}

TEST(ScratchFolder, AnotherProcessCollidesToo) {
  TemporaryFolder scratch;
  OtherRun other(scratch.path(), "b");
  ASSERT_TRUE(other.owns());
  const auto error = error_of([&] { ScratchFolder(scratch.path(), "b"); });
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_TRUE(error.says("pid=" + std::to_string(other.process()))) << error.text;
  EXPECT_TRUE(list_orphans(scratch.path()).empty());
  EXPECT_EQ(error_of([&] { remove_orphan(scratch.path(), "spillway-b"); }).code, ErrorCode::usage);
  EXPECT_TRUE(std::filesystem::exists(scratch / "spillway-b" / "state"));
}

TEST(ScratchFolder, AKilledRunLeavesAnOrphanThatCanBeRemoved) {
  TemporaryFolder scratch;
  OtherRun other(scratch.path(), "dead");
  ASSERT_TRUE(other.owns());
  const ScratchFolder alive(scratch.path(), "alive");
  const std::string pid = "pid=" + std::to_string(other.process());
  other.kill();
  const auto orphans = list_orphans(scratch.path());
  ASSERT_EQ(orphans.size(), 1u);
  EXPECT_EQ(orphans[0].name, "spillway-dead");
  EXPECT_NE(orphans[0].owner.find(pid), std::string::npos) << orphans[0].owner;
  EXPECT_GE(orphans[0].bytes, kMiB);
  EXPECT_GE(orphans[0].age_s, 0);
  EXPECT_LT(orphans[0].age_s, 600);
  remove_orphan(scratch.path(), "spillway-dead");
  EXPECT_TRUE(list_orphans(scratch.path()).empty());
  EXPECT_FALSE(std::filesystem::exists(scratch / "spillway-dead"));
  EXPECT_TRUE(std::filesystem::exists(alive.path()));
}

TEST(ScratchFolder, TheSameRunTakesItsDeadFolderOver) {
  TemporaryFolder scratch;
  OtherRun other(scratch.path(), "r");
  ASSERT_TRUE(other.owns());
  other.kill();
  {
    const ScratchFolder folder(scratch.path(), "r");
    EXPECT_TRUE(folder.taken_over());
    EXPECT_EQ(ScratchFile::open(folder.path() / "state").bytes(), kMiB);
    EXPECT_TRUE(list_orphans(scratch.path()).empty());
  }
  EXPECT_EQ(list_orphans(scratch.path()).size(), 1u) << "who takes a folder over has not decided to remove it";
  {
    ScratchFolder folder(scratch.path(), "r");
    EXPECT_EQ(ScratchFile::open(folder.path() / "state").bytes(), kMiB);
    folder.give_up();
  }
  EXPECT_TRUE(scratch.empty());
}

TEST(ScratchFolder, AKeptFolderIsThereForTheNextOwnerAndAnOrphanUntilThen) {
  TemporaryFolder scratch;
  {
    ScratchFolder folder(scratch.path(), "failed");
    const ScratchFile file = ScratchFile::create(folder.path() / "state", kMiB, false);
    folder.keep();
    const ScratchFolder moved = std::move(folder);
    EXPECT_TRUE(list_orphans(scratch.path()).empty());
  }
  const auto orphans = list_orphans(scratch.path());
  ASSERT_EQ(orphans.size(), 1u);
  EXPECT_EQ(orphans[0].name, "spillway-failed");
  EXPECT_GE(orphans[0].bytes, kMiB);
  const ScratchFolder next(scratch.path(), "failed");
  EXPECT_TRUE(next.taken_over());
  EXPECT_EQ(ScratchFile::open(next.path() / "state").bytes(), kMiB);
}

TEST(ScratchFolder, AFolderWhoseOwnerDiedBeforeItSignedIsTheNextOnes) {
  for (const bool with_file : {false, true}) {
    const TemporaryFolder scratch;
    std::filesystem::create_directory(scratch / "spillway-early");
    if (with_file) std::ofstream(scratch / "spillway-early" / "owner");
    EXPECT_TRUE(list_orphans(scratch.path()).empty());
    ScratchFolder folder(scratch.path(), "early");
    folder.give_up();
  }
}

// Shows that folders without a valid owner file are neither listed, removed nor taken over, though they
// are named like a run's: an unpacked bundle, somebody's notes, another program's folder.
TEST(ScratchFolder, AFolderWithoutOurOwnerFileIsNoRuns) {
  const TemporaryFolder scratch;
  const auto make = [&](const std::string& name, const std::string& owner) {
    std::filesystem::create_directory(scratch / name);
    std::ofstream(scratch / name / "bin") << "x";
    if (!owner.empty()) std::ofstream(scratch / name / "owner") << owner;
  };
  make("spillway-0.1.0", "");
  make("spillway-notes", "root\n");
  make("spillway-moved", "spillway-scratch 1 run=elsewhere host=n1 pid=1 started=2026-01-01T00:00:00Z\n");
  make("spillway-nobody", "spillway-scratch 1 run= host=n1 pid=1\n");
  EXPECT_TRUE(list_orphans(scratch.path()).empty());
  for (const std::string id : {"0.1.0", "notes", "moved", "nobody"}) {
    SCOPED_TRACE(id);
    EXPECT_EQ(error_of([&] { remove_orphan(scratch.path(), "spillway-" + id); }).code, ErrorCode::usage);
    const auto error = error_of([&] { ScratchFolder(scratch.path(), id); });
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_TRUE(error.says("owner file of run " + id)) << error.text;
    EXPECT_TRUE(std::filesystem::exists(scratch / ("spillway-" + id) / "bin"));
  }
}

// Makes folders of earlier versions of the program, whose owner file had no magic word.
class OldOwner : public testing::Test {
 protected:
  static constexpr const char* kLine = "host=n1 pid=17 run=old started=2026-01-31T12:00:00Z\n";
  void make(const std::string& name, const std::string& owner) const {
    std::filesystem::create_directory(scratch_ / name);
    std::ofstream(scratch_ / name / "owner") << owner;
    std::ofstream(scratch_ / name / "tiles") << "a store";
  }
  TemporaryFolder scratch_;
};

TEST_F(OldOwner, IsListedAndReclaimedAndTakenOver) {
  make("spillway-old", kLine);
  const auto orphans = list_orphans(scratch_.path());
  ASSERT_EQ(orphans.size(), 1u);
  EXPECT_EQ(orphans[0].run, "old");
  EXPECT_EQ(orphans[0].owner + "\n", kLine);
  {
    const ScratchFolder folder(scratch_.path(), "old");
    EXPECT_TRUE(folder.taken_over());
    EXPECT_EQ(std::filesystem::file_size(folder.path() / "tiles"), 7u);
    EXPECT_TRUE(list_orphans(scratch_.path()).empty());
  }
  const auto signed_anew = list_orphans(scratch_.path());
  ASSERT_EQ(signed_anew.size(), 1u);
  EXPECT_EQ(signed_anew[0].owner.find("run=old host="), 0u) << signed_anew[0].owner;
  make("spillway-old", kLine);
  remove_orphan(scratch_.path(), "spillway-old");
  EXPECT_TRUE(scratch_.empty());
}

TEST_F(OldOwner, IsNoRunsUnlessToTheLetterAndAloneWithAStore) {
  const std::string line = kLine;
  const auto is_nobodys = [&] {
    EXPECT_TRUE(list_orphans(scratch_.path()).empty());
    EXPECT_EQ(error_of([&] { remove_orphan(scratch_.path(), "spillway-old"); }).code, ErrorCode::usage);
    EXPECT_EQ(error_of([&] { ScratchFolder(scratch_.path(), "old"); }).code, ErrorCode::usage);
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "spillway-old" / "tiles"));
  };
  for (const std::string& owner : {
           "x" + line,
           line + "x",
           line + line,
           " " + line,
           line.substr(0, line.size() - 1),
           line.substr(0, 30) + "\n",
           std::string("host=n1 pid=17 run=another started=2026-01-31T12:00:00Z\n"),
           std::string("host=n1 pid=17 run= started=2026-01-31T12:00:00Z\n"),
           std::string("host=n1 pid=1x run=old started=2026-01-31T12:00:00Z\n"),
           std::string("host=n1 pid=17 run=old started=2026-01-31 12:00:00Z\n"),
           std::string("host=n1 pid=17 run=old started=2026-01-31T12:00:00Z more\n"),
       }) {
    SCOPED_TRACE(owner);
    make("spillway-old", owner);
    is_nobodys();
  }
  make("spillway-old", kLine);
  std::ofstream(scratch_ / "spillway-old" / "notes") << "x";
  is_nobodys();
  std::filesystem::remove(scratch_ / "spillway-old" / "notes");
  std::filesystem::rename(scratch_ / "spillway-old" / "tiles", scratch_ / "elsewhere");
  std::filesystem::create_symlink(scratch_ / "elsewhere", scratch_ / "spillway-old" / "tiles");
  is_nobodys();
}

TEST(ScratchFolder, WhoHoldsItWithoutFlockIsInTheFileBeside) {
  const TemporaryFolder scratch;
  ScratchFolder(scratch.path(), "r").keep();
  std::ofstream(scratch / "spillway-r" / "owner.holder") << "n7 17 1000 - -\n";
  const pid_t child = ::fork();
  if (child == 0) {
    test::forbid(SYS_flock, ENOSYS);
    const auto error = error_of([&] { ScratchFolder(scratch.path(), "r"); });
    ::_exit(error.says("is in use (host n7, process 17)") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ScratchFolder, WhatOthersMayWriteToIsNotTrusted) {
  const TemporaryFolder scratch;
  const auto refused = [&](const std::string& why) {
    const auto error = error_of([&] { ScratchFolder(scratch.path(), "r"); });
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_TRUE(error.says("to belong to user") && error.says(why)) << error.text;
  };
  ScratchFolder(scratch.path(), "r").keep();
  const std::filesystem::path folder = scratch / "spillway-r", owner = folder / "owner";
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  refused("mode 0777");
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(owner.c_str(), 0622), 0);
  refused("mode 0622");
  ASSERT_EQ(::chmod(owner.c_str(), 0600), 0);
  std::filesystem::create_hard_link(owner, scratch / "second");
  refused("2 hard links");
  std::filesystem::remove(scratch / "second");
  std::filesystem::rename(owner, scratch / "elsewhere");
  std::filesystem::create_symlink(scratch / "elsewhere", owner);
  EXPECT_EQ(error_of([&] { ScratchFolder(scratch.path(), "r"); }).code, ErrorCode::io);
  std::filesystem::remove(owner);
  std::filesystem::rename(scratch / "elsewhere", owner);
  EXPECT_TRUE(ScratchFolder(scratch.path(), "r").taken_over());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  refused("got owner 12345");
}

TEST(ScratchFolder, NothingElseIsEverTouched) {
  TemporaryFolder scratch, elsewhere;
  std::filesystem::create_directory(scratch / "other");
  std::filesystem::create_directory_symlink(elsewhere.path(), scratch / "spillway-link");
  std::ofstream(elsewhere / "precious") << "x";
  std::ofstream(scratch / "spillway-file") << "x";
  EXPECT_TRUE(list_orphans(scratch.path()).empty());
  EXPECT_TRUE(list_orphans(scratch / "missing").empty());
  for (const char* name : {"other", "spillway-link", "spillway-file", "spillway-/../other", "spillway-none", "..", ""}) {
    EXPECT_EQ(error_of([&] { remove_orphan(scratch.path(), name); }).code, ErrorCode::usage) << name;
  }
  EXPECT_EQ(error_of([&] { ScratchFolder(scratch.path(), "link"); }).code, ErrorCode::usage);
  EXPECT_EQ(error_of([&] { ScratchFolder(scratch.path(), "file"); }).code, ErrorCode::usage);
  EXPECT_TRUE(std::filesystem::exists(elsewhere / "precious"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "other"));
}

TEST(ScratchFolder, OddIdsAndMissingPathsAreRefused) {
  TemporaryFolder scratch;
  for (const char* id : {"", "a/b", "../x", "a b", "é"})
    EXPECT_EQ(error_of([&] { ScratchFolder(scratch.path(), id); }).code, ErrorCode::usage) << id;
  EXPECT_EQ(error_of([&] { ScratchFolder(scratch / "missing", "a"); }).code, ErrorCode::io);
  EXPECT_TRUE(scratch.empty());
}

}  // namespace
}  // namespace spillway::offload::scratch_folder_test
