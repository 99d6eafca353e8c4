#include "offload/scratch_file.h"

#include <sys/stat.h>

#include <utility>

#include "base/units.h"
#include "tests/offload/support_files.h"

namespace spillway::offload::scratch_file_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

TEST(ScratchFile, IsPreallocatedPrivateAndRemoved) {
  TemporaryFolder folder;
  {
    const ScratchFile file = ScratchFile::create(folder / "data", 3 * kMiB);
    struct stat info {};
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 3 * kMiB);
    EXPECT_EQ(info.st_mode & 0077, 0u);
    EXPECT_TRUE(!file.preallocated() || info.st_blocks * 512 >= 3 * kMiB);
    EXPECT_EQ(file.bytes(), 3 * kMiB);
  }
  EXPECT_TRUE(folder.empty());
}

TEST(ScratchFile, StaysWhenAskedToAndOpensAgain) {
  TemporaryFolder folder;
  { const ScratchFile file = ScratchFile::create(folder / "data", kMiB, false); }
  {
    const ScratchFile again = ScratchFile::open(folder / "data", true);
    EXPECT_EQ(again.bytes(), kMiB);
  }
  EXPECT_TRUE(folder.empty());
}

TEST(ScratchFile, MovesItsDescriptor) {
  TemporaryFolder folder;
  ScratchFile first = ScratchFile::create(folder / "data", 4096);
  const int descriptor = first.descriptor();
  {
    const ScratchFile second = std::move(first);
    EXPECT_EQ(second.descriptor(), descriptor);
    EXPECT_TRUE(std::filesystem::exists(folder / "data"));
  }
  EXPECT_TRUE(folder.empty());
}

TEST(ScratchFile, MissingFolderOrFileIsAnIoError) {
  TemporaryFolder folder;
  const auto error = error_of([&] { ScratchFile::create(folder / "no" / "data", 4096); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("errno 2") && error.says("/no/data")) << error.text;
  EXPECT_EQ(error_of([&] { ScratchFile::open(folder / "nothing"); }).code, ErrorCode::io);
}

TEST(ScratchFile, AFullFilesystemRefusesAndKeepsNothing) {
  const test::MountedFolder small("tmpfs", "size=8m");
  if (!small.mounted()) GTEST_SKIP() << small.why();
  const auto error = error_of([&] { ScratchFile::create(small.path() / "data", 16 * kMiB); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  for (const std::string& part : {format_bytes(16 * kMiB), format_bytes(8 * kMiB), std::string("--nvme")})
    EXPECT_TRUE(error.says(part)) << error.text;
  EXPECT_TRUE(std::filesystem::is_empty(small.path()));
  // creating this file succeeds, because the space of the failed file is free again
  const ScratchFile fits = ScratchFile::create(small.path() / "data", 6 * kMiB);
  EXPECT_TRUE(fits.preallocated());
}

// Shows that the size is set without fallocate. ramfs supports neither fallocate nor (on most kernels) O_DIRECT.
TEST(ScratchFile, WithoutFallocateTheSizeIsSet) {
  const test::MountedFolder plain("ramfs");
  if (!plain.mounted()) GTEST_SKIP() << plain.why();
  const ScratchFile file = ScratchFile::create(plain.path() / "data", 2 * kMiB);
  EXPECT_FALSE(file.preallocated());
  EXPECT_EQ(std::filesystem::file_size(file.path()), static_cast<u64>(2 * kMiB));
}

}  // namespace
}  // namespace spillway::offload::scratch_file_test
