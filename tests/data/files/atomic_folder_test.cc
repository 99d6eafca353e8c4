#include "data/files/atomic_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/data/support_files.h"

namespace spillway::data::atomic_folder_test {
namespace {

using spillway::test::bytes_of;
using spillway::test::error_of;
using spillway::test::put;
using spillway::test::TemporaryFolder;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void write_checkpoint(const fs::path& path, const std::string& text) {
  AtomicFolder folder(path, Existing::replace);
  folder.write_text("manifest.json", text);
  folder.write_text("weights/part.txt", text);
  folder.commit();
}

TEST(AtomicFolder, AppearsOnlyOnCommit) {
  const TemporaryFolder root;
  {
    AtomicFolder folder(root / "runs" / "step-1/", Existing::replace);
    EXPECT_EQ(folder.final_path(), root / "runs" / "step-1");
    folder.write_text("a.txt", "hello");
    EXPECT_FALSE(fs::exists(root / "runs" / "step-1"));
    EXPECT_EQ(folder.path().string(), (root / "runs" / "step-1.partial-").string() + std::to_string(::getpid()));
    folder.commit();
  }
  EXPECT_EQ(bytes_of(root / "runs" / "step-1" / "a.txt"), "hello");
  EXPECT_EQ(names_in(root / "runs"), std::vector<std::string>{"step-1"});
}

TEST(AtomicFolder, WithoutCommitNothingIsLeft) {
  const TemporaryFolder root;
  write_checkpoint(root / "last", "old");
  try {
    AtomicFolder folder(root / "last", Existing::replace);
    folder.write_text("manifest.json", "new");
    throw Error(ErrorCode::io, "half-way");
  } catch (const Error&) {
  }
  EXPECT_EQ(names_in(root.path()), std::vector<std::string>{"last"});
  EXPECT_EQ(bytes_of(root / "last" / "manifest.json"), "old");
}

TEST(AtomicFolder, ReplacesAnOldOneInOneStep) {
  const TemporaryFolder root;
  write_checkpoint(root / "last", "old");
  put(root / "last" / "only in the old one", "x");
  write_checkpoint(root / "last", "new");
  EXPECT_EQ(names_in(root.path()), std::vector<std::string>{"last"});
  EXPECT_EQ(names_in(root / "last"), (std::vector<std::string>{"manifest.json", "weights"}));
  EXPECT_EQ(bytes_of(root / "last" / "weights" / "part.txt"), "new");
}

// Runs `act` in a child process, which kills itself with SIGKILL when `act` calls its argument `die`. Returns the child's process id.
pid_t killed_in(const std::function<void(const std::function<void()>& die)>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      act([] { ::raise(SIGKILL); });
    } catch (...) {
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  return child;
}

TEST(AtomicFolder, AProcessKilledHalfWayLeavesTheOldOneAndItsRestIsFound) {
  const TemporaryFolder root;
  write_checkpoint(root / "last", "old");
  const pid_t dead = killed_in([&](const std::function<void()>& die) {
    AtomicFolder folder(root / "last", Existing::replace);
    folder.write_text("manifest.json", "new");
    die();
  });
  EXPECT_EQ(bytes_of(root / "last" / "manifest.json"), "old");
  const fs::path rest = root / ("last.partial-" + std::to_string(dead));
  EXPECT_TRUE(fs::exists(rest / "manifest.json"));

  put(root / "notes.partial-draft", "no folder of ours");
  fs::create_directory(root / "other.partial-12x");
  EXPECT_EQ(Beside::remove_left(root.path()), std::vector<fs::path>{rest});
  EXPECT_FALSE(fs::exists(rest));
  EXPECT_TRUE(fs::exists(root / "other.partial-12x"));
  EXPECT_TRUE(Beside::remove_left(root.path()).empty());
  EXPECT_TRUE(Beside::remove_left(root / "not there").empty());
}

TEST(AtomicFolder, AProcessKilledAfterCommitLeavesTheNewOne) {
  const TemporaryFolder root;
  write_checkpoint(root / "last", "old");
  killed_in([&](const std::function<void()>& die) {
    AtomicFolder folder(root / "last", Existing::replace);
    folder.write_text("manifest.json", "new");
    folder.commit();
    die();
  });
  EXPECT_EQ(bytes_of(root / "last" / "manifest.json"), "new");
}

TEST(AtomicFolder, TheRestOfADeadProcessOfOurNumberIsReplaced) {
  const TemporaryFolder root;
  const fs::path rest = root / ("last.partial-" + std::to_string(::getpid()));
  fs::create_directory(rest);
  put(rest / "old.txt", "x");
  AtomicFolder folder(root / "last", Existing::replace);
  folder.write_text("new.txt", "y");
  folder.commit();
  EXPECT_EQ(names_in(root / "last"), std::vector<std::string>{"new.txt"});
}

TEST(AtomicFolder, AFullDiskIsSaidInWords) {
  const TemporaryFolder root;
  write_checkpoint(root / "last", "old");
  {
    AtomicFolder folder(root / "last", Existing::replace);
    fs::create_symlink("/dev/full", folder.path() / "manifest.json");  // every write to /dev/full fails with ENOSPC
    const std::string text = error_of(ErrorCode::io, [&] { folder.write_text("manifest.json", "new"); });
    EXPECT_THAT(text, HasSubstr("the disk is full"));
    EXPECT_THAT(text, HasSubstr("errno 28"));
    EXPECT_THAT(text, HasSubstr("manifest.json"));
  }
  EXPECT_EQ(names_in(root.path()), std::vector<std::string>{"last"});
  EXPECT_EQ(bytes_of(root / "last" / "manifest.json"), "old");
}

TEST(AtomicFolder, APlaceThatCannotBeWrittenIsNamed) {
  const TemporaryFolder root;
  put(root / "file", "x");
  EXPECT_THAT(error_of(ErrorCode::io, [&] { AtomicFolder folder(root / "file" / "last", Existing::replace); }), HasSubstr("file"));
  AtomicFolder folder(root / "file", Existing::replace);  // the folder must replace even a file at the final path
  folder.write_text("a", "b");
  folder.commit();
  EXPECT_TRUE(fs::is_directory(root / "file"));
}

// If another program creates something at the final path while a folder is written, the new entry stays, and so does the folder that was
// written.
TEST(AtomicFolder, WhatComesToBeMeanwhileStays) {
  for (const Existing existing : {Existing::refuse, Existing::replace}) {
    const TemporaryFolder root;
    std::string text;
    {
      AtomicFolder folder(root / "out", existing);
      folder.write_text("weights", "ours");
      fs::create_directory(root / "out");
      put(root / "out" / "thesis.txt", "theirs");
      text = error_of(ErrorCode::io, [&] { folder.commit(); });
    }
    const std::string kept = "out.finished-" + std::to_string(::getpid());
    EXPECT_THAT(text, HasSubstr(kept));
    EXPECT_EQ(names_in(root.path()), (std::vector<std::string>{"out", kept}));
    EXPECT_EQ(bytes_of(root / "out" / "thesis.txt"), "theirs");
    EXPECT_EQ(bytes_of(root / kept / "weights"), "ours");
  }
}

TEST(AtomicFolder, AnOldOneThatAnotherProgramExchangedStays) {
  const TemporaryFolder root;
  write_checkpoint(root / "out", "old");
  {
    AtomicFolder folder(root / "out", Existing::replace);
    folder.write_text("weights", "ours");
    fs::rename(root / "out", root / "aside");
    fs::create_directory(root / "out");
    put(root / "out" / "thesis.txt", "theirs");
    error_of(ErrorCode::io, [&] { folder.commit(); });
  }
  EXPECT_EQ(bytes_of(root / "out" / "thesis.txt"), "theirs");
  EXPECT_EQ(bytes_of(root / "aside" / "manifest.json"), "old");
  EXPECT_EQ(names_in(root.path()), (std::vector<std::string>{"aside", "out", "out.finished-" + std::to_string(::getpid())}));
}

TEST(AtomicFolder, AnOldOneThatWasRemovedMeanwhileIsNoHindrance) {
  const TemporaryFolder root;
  write_checkpoint(root / "out", "old");
  AtomicFolder folder(root / "out", Existing::replace);
  folder.write_text("weights", "ours");
  fs::remove_all(root / "out");
  folder.commit();
  EXPECT_EQ(names_in(root.path()), std::vector<std::string>{"out"});
}

TEST(AtomicFolder, WhatIsThereIsRefusedWhereNothingIsToBeReplaced) {
  const TemporaryFolder root;
  fs::create_directory(root / "empty");
  fs::create_symlink(root / "nowhere", root / "link");
  put(root / "file", "x");
  for (const char* name : {"empty", "link", "file"}) {
    EXPECT_THAT(error_of(ErrorCode::usage, [&] { AtomicFolder folder(root / name, Existing::refuse); }), HasSubstr(name));
  }
  EXPECT_EQ(names_in(root.path()), (std::vector<std::string>{"empty", "file", "link"}));
}

// Two AtomicFolders are written for one path at the same time. Neither removes the other's files as the remains of a dead process.
TEST(AtomicFolder, TheWorkOfALivingProcessIsNotRemoved) {
  const TemporaryFolder root;
  AtomicFolder first(root / "out", Existing::refuse), second(root / "out", Existing::refuse);
  first.write_text("a", "first");
  second.write_text("a", "second");
  EXPECT_NE(first.path(), second.path());
  second.commit();
  error_of(ErrorCode::io, [&] { first.commit(); });
  EXPECT_EQ(bytes_of(root / "out" / "a"), "second");
}

TEST(AtomicFile, ReplacesOnlyWhatWasThere) {
  const TemporaryFolder root;
  const auto write = [&](Existing existing, const std::function<void()>& meanwhile) {
    AtomicFile file(root / "out", existing);
    file.file().write(0, std::as_bytes(std::span(std::string_view("new"))));
    meanwhile();
    file.commit();
  };
  write(Existing::refuse, [] {});
  EXPECT_EQ(bytes_of(root / "out"), "new");
  error_of(ErrorCode::usage, [&] { write(Existing::refuse, [] {}); });

  put(root / "out", "old");
  write(Existing::replace, [&] { EXPECT_EQ(bytes_of(root / "out"), "old"); });
  EXPECT_EQ(bytes_of(root / "out"), "new");

  const auto theirs = [&] {
    fs::remove(root / "out");
    put(root / "out", "theirs");  // many filesystems give the new file the number of the inode that was freed last
  };
  error_of(ErrorCode::io, [&] { write(Existing::replace, theirs); });
  EXPECT_EQ(bytes_of(root / "out"), "theirs");
  fs::remove(root / "out");
  error_of(ErrorCode::io, [&] { write(Existing::refuse, theirs); });
  EXPECT_EQ(bytes_of(root / "out"), "theirs");
  write(Existing::overwrite, theirs);
  EXPECT_EQ(bytes_of(root / "out"), "new");
}

TEST(AtomicFile, AProcessKilledHalfWayLeavesTheOldOneAndTheNextRemovesItsRest) {
  const TemporaryFolder root;
  put(root / "out", "old");
  killed_in([&](const std::function<void()>& die) {
    AtomicFile file(root / "out", Existing::replace);
    file.file().write(0, std::as_bytes(std::span(std::string_view("new"))));
    die();
  });
  EXPECT_EQ(bytes_of(root / "out"), "old");
  EXPECT_EQ(names_in(root.path()).size(), 2u);
  put(root / "out.partial-notes", "a user's");
  put(root / "other.partial-77", "of another file");
  AtomicFile file(root / "out", Existing::replace);
  file.commit();
  EXPECT_EQ(names_in(root.path()), (std::vector<std::string>{"other.partial-77", "out", "out.partial-notes"}));
}

}  // namespace
}  // namespace spillway::data::atomic_folder_test
