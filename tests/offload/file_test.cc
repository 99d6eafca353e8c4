#include "offload/file.h"

#include <sys/stat.h>

#include <utility>

#include "base/units.h"
#include "tests/offload/support_files.h"

namespace spillway::offload::file_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

TEST(File, IsPreallocatedPrivateAndRemoved) {
  TemporaryFolder folder;
  {
    const File file = File::create(folder / "data", 3 * kMiB);
    struct stat info {};
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 3 * kMiB);
    EXPECT_EQ(info.st_mode & 0077, 0u);
    EXPECT_TRUE(!file.preallocated() || info.st_blocks * 512 >= 3 * kMiB);
    EXPECT_EQ(file.bytes(), 3 * kMiB);
  }
  EXPECT_TRUE(folder.empty());
}

TEST(File, StaysWhenAskedToAndOpensAgain) {
  TemporaryFolder folder;
  { const File file = File::create(folder / "data", kMiB, false); }
  {
    const File again = File::open(folder / "data", true);
    EXPECT_EQ(again.bytes(), kMiB);
  }
  EXPECT_TRUE(folder.empty());
}

TEST(File, MovesItsDescriptor) {
  TemporaryFolder folder;
  File first = File::create(folder / "data", 4096);
  const int descriptor = first.descriptor();
  {
    const File second = std::move(first);
    EXPECT_EQ(second.descriptor(), descriptor);
    EXPECT_TRUE(std::filesystem::exists(folder / "data"));
  }
  EXPECT_TRUE(folder.empty());
}

TEST(File, MissingFolderOrFileIsAnIoError) {
  TemporaryFolder folder;
  const auto error = error_of([&] { File::create(folder / "no" / "data", 4096); });
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_TRUE(error.says("errno 2") && error.says("/no/data")) << error.text;
  EXPECT_EQ(error_of([&] { File::open(folder / "nothing"); }).code, ErrorCode::io);
}

TEST(File, AFullFilesystemRefusesAndKeepsNothing) {
  const test::MountedFolder small("tmpfs", "size=8m");
  if (!small.mounted()) GTEST_SKIP() << small.why();
  const auto error = error_of([&] { File::create(small.path() / "data", 16 * kMiB); });
  EXPECT_EQ(error.code, ErrorCode::refused);
  for (const std::string& part : {format_bytes(16 * kMiB) + " wanted", format_bytes(8 * kMiB) + " free", std::string("--nvme")})
    EXPECT_TRUE(error.says(part)) << error.text;
  EXPECT_TRUE(std::filesystem::is_empty(small.path()));
  const File fits = File::create(small.path() / "data", 6 * kMiB);  // and its space is free again
  EXPECT_TRUE(fits.preallocated());
}

// ramfs knows neither fallocate nor (on most kernels) O_DIRECT.
TEST(File, WithoutFallocateTheSizeIsSet) {
  const test::MountedFolder plain("ramfs");
  if (!plain.mounted()) GTEST_SKIP() << plain.why();
  const File file = File::create(plain.path() / "data", 2 * kMiB);
  EXPECT_FALSE(file.preallocated());
  EXPECT_EQ(std::filesystem::file_size(file.path()), static_cast<u64>(2 * kMiB));
}

}  // namespace
}  // namespace spillway::offload::file_test
