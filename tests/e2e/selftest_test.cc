// Tests the command selftest: it finds that training gives bitwise equal results in all its cells, and it reports a planted difference.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tests/e2e/support_program.h"

namespace spillway::test::selftest_test {
namespace {

int count(const std::string& text, const std::string& piece) {
  int times = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++times;
  return times;
}

TEST(SelftestRelease, FindsTheSameBits) {
  const Workplace place;
  const Finished run = place.spillway({"selftest", "--nvme", place.path().string()});
  EXPECT_EQ(run.status, 0) << run.err << run.out;
  EXPECT_GE(count(run.out, "same bits"), 6) << run.out;
  EXPECT_EQ(count(run.out, "DIFFERS") + count(run.out, "FAILED"), 0) << run.out;
  EXPECT_TRUE(mentions(run.out, "\nselftest passed: in each of 8 families")) << run.out;
  EXPECT_EQ(count(run.out, "reference"), 8) << "of gpt2-tiny and three other kinds, on one data-parallel rank and two";
}

// Puts a script in the place of the program. The script runs the program and then overwrites a byte of the weights in the checkpoint of one
// case.
TEST(SoakSelftest, SaysWhichBitsDiffer) {
  Workplace place;
  place.write("faulty.sh", "#!/bin/bash\n" SPILLWAY_PROGRAM
                           " \"$@\" || exit $?\n"
                           "case \"$*\" in *pread*) for word in \"$@\"; do [ -d \"$word/checkpoints\" ] && printf '\\x55' | dd "
                           "of=\"$word/checkpoints/step-00000004/model.safetensors\" "
                           "bs=1 seek=200000 conv=notrunc 2>/dev/null; done;; esac\nexit 0\n");
  const std::string faulty = (place / "faulty.sh").string();
  ASSERT_EQ(::chmod(faulty.c_str(), 0755), 0);
  place.before_start([faulty] { ::setenv("SPILLWAY_PROGRAM", faulty.c_str(), 1); });
  const Finished run = place.spillway({"selftest", "--nvme", place.path().string(), "--json"});
  EXPECT_EQ(run.status, 7) << run.err << run.out;
  EXPECT_EQ(count(run.out, "\"DIFFERS\""), 1) << run.out;
  EXPECT_TRUE(mentions(run.err, "nvme by pread, no overlap: expected the same bits")) << run.err;
  const Finished text = place.spillway({"selftest", "--nvme", place.path().string()});
  EXPECT_EQ(text.status, 7) << text.err << text.out;
  EXPECT_TRUE(mentions(text.out, "\nselftest FAILED: 1 of ")) << text.out;
}

TEST(SelftestRelease, NamesAFolderItCannotWriteTo) {
  const Workplace place;
  const Finished run = place.spillway({"selftest", "--nvme", "/proc"});
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(mentions(run.err, "expected a folder to write to, got /proc")) << run.err;
}

}  // namespace
}  // namespace spillway::test::selftest_test
