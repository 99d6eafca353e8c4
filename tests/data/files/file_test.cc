// Replaces the system calls that src/data uses, in this test program alone. A replacement can transfer few bytes, be
// interrupted or fail, and it records the order in which data was made durable. All other calls pass through unchanged.
#include "data/files/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "data/files/atomic_folder.h"
#include "data/safetensors/safetensors.h"
#include "tests/data/support_files.h"

namespace {

std::atomic<bool> stutter{false};   // if set, reads and writes transfer at most 7 bytes, and every third call is interrupted by a signal
std::atomic<int> failing_error{0};  // if not 0, the errno with which every read, write, fsync, sync_file_range and fallocate fails
std::atomic<unsigned> calls{0};
std::atomic<bool> recording{false};
std::mutex record_mutex;
std::vector<std::string> record;

bool refused(size_t& count) {
  if (failing_error) return errno = failing_error, true;
  if (!stutter) return false;
  if (++calls % 3 == 0) return errno = EINTR, true;
  count = std::min<size_t>(count, 7);
  return false;
}

void note(const std::string& what) {
  const std::lock_guard lock(record_mutex);
  if (recording) record.push_back(what);
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* into, size_t count, off_t offset) {
  return refused(count) ? -1 : ::syscall(SYS_pread64, fd, into, count, offset);
}

ssize_t pwrite(int fd, const void* from, size_t count, off_t offset) {
  return refused(count) ? -1 : ::syscall(SYS_pwrite64, fd, from, count, offset);
}

int fsync(int fd) {
  if (failing_error) return errno = failing_error, -1;
  note("sync " + std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).filename().string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags) {
  if (failing_error) return errno = failing_error, -1;
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, count, flags));
}

int fallocate(int fd, int mode, off_t offset, off_t count) {
  if (failing_error) return errno = failing_error, -1;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, count));
}

int rename(const char* from, const char* to) noexcept {
  note("rename to " + std::filesystem::path(to).filename().string());
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  note("rename to " + std::filesystem::path(to).filename().string());
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
}

namespace spillway::data::file_test {
namespace {

using spillway::test::bytes_of;
using spillway::test::error_of;
using spillway::test::put;
using spillway::test::TemporaryFolder;
using testing::HasSubstr;

struct Stutter {
  Stutter() { stutter = true; }
  ~Stutter() { stutter = false; }
};

struct Failing {
  explicit Failing(int error) { failing_error = error; }
  ~Failing() { failing_error = 0; }
};

TEST(File, ShortAndInterruptedTransfersAreResumed) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  const Stutter on;
  const unsigned before = calls;
  File file = File::create(folder / "a");
  file.write(0, std::as_bytes(std::span(text)));
  std::string back(text.size(), ' ');
  file.read(0, std::as_writable_bytes(std::span(back)));
  EXPECT_GT(calls - before, 2u * 1000 / 7);  // most calls moved at most 7 bytes
  EXPECT_EQ(back, text);
  EXPECT_EQ(bytes_of(folder / "a"), text);
}

TEST(File, EveryFailureNamesPathOffsetAndErrno) {
  const TemporaryFolder folder;
  File file = File::create(put(folder / "a", "text"));
  std::byte bytes[4];
  const Failing on(EIO);
  for (const std::function<void()>& act :
       {std::function<void()>([&] { file.read(12, bytes); }), {[&] { file.write(12, bytes); }}, {[&] { file.send(12, 4); }}, {[&] {
          file.send_and_drop(12, 4);
        }}}) {
    const std::string text = error_of(ErrorCode::io, act);
    EXPECT_THAT(text, HasSubstr((folder / "a").string()));
    EXPECT_THAT(text, HasSubstr("offset 12"));
    EXPECT_THAT(text, HasSubstr("errno 5"));
  }
  EXPECT_THAT(error_of(ErrorCode::io, [&] { file.sync(); }), HasSubstr("errno 5"));
}

TEST(File, RoomIsReservedWhereTheFilesystemCanAndGivenLaterWhereNot) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a");
  {
    const Failing on(ENOSPC);
    EXPECT_THAT(error_of(ErrorCode::io, [&] { file.reserve(1 << 20); }), HasSubstr("the disk is full"));
  }
  {
    const Failing on(EOPNOTSUPP);
    file.reserve(1 << 20);
    file.send(0, 1 << 20);  // send() has no effect on a filesystem that cannot write out a range; sync() writes it later
  }
  EXPECT_EQ(file.size_bytes(), 1 << 20);
  EXPECT_EQ(std::filesystem::file_size(folder / "a"), 1u << 20);
}

TEST(File, ATextIsDurableBeforeItsNameIsAndTheNameAfterwards) {
  const TemporaryFolder folder;
  const std::string beside = "a.partial-" + std::to_string(::getpid());
  recording = true;
  replace_text(put(folder / "a", "a longer old text"), "new");
  recording = false;
  EXPECT_EQ(record, (std::vector<std::string>{"sync " + beside, "rename to a", "sync " + folder.path().filename().string()}));
  record.clear();
  EXPECT_EQ(bytes_of(folder / "a"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / beside));
}

TEST(File, ATextThatCannotBeWrittenLeavesTheOldOneAndNothingBeside) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  std::filesystem::create_directory(folder / "taken");
  {
    const Failing on(ENOSPC);
    EXPECT_THAT(error_of(ErrorCode::io, [&] { replace_text(folder / "a", "new"); }), HasSubstr("the disk is full"));
  }
  EXPECT_THAT(error_of(ErrorCode::io, [&] { replace_text(folder / "taken", "new"); }), HasSubstr((folder / "taken").string()));
  EXPECT_THAT(error_of(ErrorCode::io, [&] { replace_text(folder / "missing" / "a", "new"); }), HasSubstr("errno 2"));
  EXPECT_EQ(bytes_of(folder / "a"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(File, TextFromAFileIsMadeFitForAMessage) {
  EXPECT_EQ(in_quotes("plain name"), "\"plain name\"");
  EXPECT_EQ(in_quotes("a\"b\\\n\x1b"), R"("a\x22b\x5c\x0a\x1b")");
  EXPECT_LT(in_quotes(std::string(100000, 'x')).size(), 200u);
}

// A path that is no regular file is refused at once. Opening a named pipe would block until somebody opens its other end.
TEST(File, WhatIsNoRegularFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths = {folder.path(),
                                              "/dev/null",
                                              "/dev/zero",
                                              folder / "pipe",
                                              folder / "socket",
                                              folder / "loop",
                                              folder / "link to the pipe",
                                              folder / std::string(300, 'a'),
                                              folder / "none"};
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("pipe", folder / "link to the pipe");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const auto& path : paths) {
    EXPECT_THAT(error_of(ErrorCode::data, [&] { File::open(path); }), HasSubstr(path.string()));
    EXPECT_THAT(error_of(ErrorCode::io, [&] { File::open_to_write(path); }), HasSubstr(path.string()));
    EXPECT_EQ(beginning_of(path, 4), "") << path;
  }
  EXPECT_THAT(error_of(ErrorCode::io, [&] { sync_path(folder / "pipe"); }), HasSubstr("cannot sync"));
  put(folder / "text", "three");
  EXPECT_EQ(beginning_of(folder / "text", 4), "thre");
  EXPECT_EQ(beginning_of(folder / "text", 40), "three");
  ::close(socket);
}

TEST(SafetensorsWriter, AFailedSyncIsNotAFinishedFile) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "a", {{.name = "a", .dtype = DType::uint8, .shape = {0}}});
    const Failing on(EIO);
    error_of(ErrorCode::io, [&] { writer.finish(); });
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(AtomicFolder, EverythingIsDurableBeforeTheRenameAndTheRenameAfterwards) {
  const TemporaryFolder root;
  AtomicFolder folder(root / "runs" / "step-1", Existing::replace);
  folder.write_text("weights/part.txt", "x");
  put(folder.path() / "by another rank.txt", "y");
  recording = true;
  folder.commit();
  recording = false;
  const std::string partial = folder.path().filename();
  ASSERT_EQ(record.size(), 6u);
  EXPECT_THAT(std::vector<std::string>(record.begin(), record.begin() + 3),
              testing::UnorderedElementsAre("sync by another rank.txt", "sync part.txt", "sync weights"));
  EXPECT_EQ(record[3], "sync " + partial);
  EXPECT_EQ(record[4], "rename to step-1");
  EXPECT_EQ(record[5], "sync runs");
  record.clear();
}

TEST(AtomicFolder, AFailedSyncLeavesTheOldOne) {
  const TemporaryFolder root;
  {
    AtomicFolder old(root / "last", Existing::replace);
    old.write_text("a", "old");
    old.commit();
  }
  {
    AtomicFolder folder(root / "last", Existing::replace);
    folder.write_text("a", "new");
    const Failing on(EIO);
    EXPECT_THAT(error_of(ErrorCode::io, [&] { folder.commit(); }), HasSubstr("errno 5"));
  }
  EXPECT_EQ(bytes_of(root / "last" / "a"), "old");
}

}  // namespace
}  // namespace spillway::data::file_test
