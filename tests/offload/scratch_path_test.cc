#include "offload/scratch_path.h"

#include <fstream>

#include "tests/offload/support_files.h"

namespace spillway::offload::scratch_path_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

TEST(ScratchPath, NamesFilesystemsByTheirMagic) {
  // The magic numbers below are copied from statfs(2), so that the table is checked against a second source.
  EXPECT_EQ(classify_filesystem(0xEF53).name, "ext4");
  EXPECT_EQ(classify_filesystem(0x58465342).name, "xfs");
  for (const u64 network :
       {0x6969u, 0xFF534D42u, 0xFE534D42u, 0x0BD00BD0u, 0x47504653u, 0x19830326u, 0x65735546u, 0x01021997u, 0x00C36400u, 0x5346414Fu}) {
    EXPECT_TRUE(classify_filesystem(network).network) << classify_filesystem(network).name;
    EXPECT_FALSE(classify_filesystem(network).memory);
  }
  for (const u64 memory : {0x01021994u, 0x858458F6u}) EXPECT_TRUE(classify_filesystem(memory).memory);
  for (const u64 local : {0xEF53u, 0x58465342u, 0x9123683Eu, 0x794C7630u, 0x2FC12FC1u}) {
    EXPECT_FALSE(classify_filesystem(local).network || classify_filesystem(local).memory);
  }
  EXPECT_EQ(classify_filesystem(0x1234).name, "0x1234");
}

TEST(ScratchPath, CreatesAMissingLastComponentOnly) {
  TemporaryFolder folder;
  const ScratchInfo before = inspect_scratch(folder / "new");
  EXPECT_FALSE(before.exists);
  EXPECT_TRUE(folder.empty()) << "looking creates nothing";
  const ScratchInfo info = prepare_scratch((folder / "new").string() + "/", false);
  EXPECT_TRUE(info.exists);
  EXPECT_EQ(info.path, folder / "new");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "new"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new")) << "the probe is gone";
  EXPECT_GT(info.total_bytes, 0);
  EXPECT_LE(info.free_bytes, info.total_bytes);
  const auto error = error_of([&] { prepare_scratch(folder / "no" / "way", false); });
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_TRUE(error.says("parent")) << error.text;
}

TEST(ScratchPath, AFileIsNoFolder) {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_EQ(error_of([&] { inspect_scratch(folder / "file"); }).code, ErrorCode::usage);
}

TEST(ScratchPath, AFolderThatTakesNoFilesIsRefused) {
  if (!std::filesystem::is_directory("/proc/self")) GTEST_SKIP() << "no /proc here";
  const auto error = error_of([] { inspect_scratch("/proc/self"); });
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_TRUE(error.says("no file can be created")) << error.text;
}

TEST(ScratchPath, NetworkFilesystemsNeedConsent) {
  ScratchInfo info;
  info.path = "/home/me";
  info.filesystem = classify_filesystem(0x6969);
  const auto error = error_of([&] { admit_scratch(info, false); });
  EXPECT_EQ(error.code, ErrorCode::usage);
  for (const char* part : {"/home/me", "nfs", "--allow-network-nvme"}) EXPECT_TRUE(error.says(part)) << error.text;
  admit_scratch(info, true);
  info.filesystem = classify_filesystem(0xEF53);
  admit_scratch(info, false);
}

TEST(ScratchPath, TmpfsIsMemoryAndItsFreeBytesAreRight) {
  const test::MountedFolder small("tmpfs", "size=8m");
  if (!small.mounted()) GTEST_SKIP() << small.why();
  const ScratchInfo info = prepare_scratch(small.path(), false);
  EXPECT_EQ(info.filesystem.name, "tmpfs");
  EXPECT_TRUE(info.filesystem.memory);
  EXPECT_EQ(info.total_bytes, 8 * kMiB);
  EXPECT_EQ(info.free_bytes, 8 * kMiB);
}

}  // namespace
}  // namespace spillway::offload::scratch_path_test
