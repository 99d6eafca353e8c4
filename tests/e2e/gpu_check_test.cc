// The archive of scripts/bundle.sh --check, unpacked and run where there is no GPU, or none to be seen: to its end, everything skipped for
// that reason.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/e2e/support_program.h"

namespace spillway::test::gpu_check_test {
namespace {

namespace fs = std::filesystem;

class GpuCheckRelease : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        run("cd " SPILLWAY_SOURCE_DIR " && SPILLWAY_BUILD=" SPILLWAY_BINARY_DIR " scripts/bundle.sh --check " + place_.path().string()), 0)
        << said();
    fs::create_directories(place_ / "unpacked");
    ASSERT_EQ(run("tar -C " + unpacked() + " --strip-components=1 -xzf " + place_.path().string() + "/spillway-check-*.tar.gz"), 0)
        << said();
  }
  int run(const std::string& command) const {
    const int status = std::system(("( " + command + " ) >" + (place_ / "said").string() + " 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int check(const std::string& folder) const {
    return run("CUDA_VISIBLE_DEVICES= " + unpacked() + "/gpu_check.sh " + (place_ / folder).string());
  }
  std::string unpacked() const { return (place_ / "unpacked").string(); }
  std::string said() const { return place_.read("said"); }

  Workplace place_;
};

TEST_F(GpuCheckRelease, RunsToItsEndWithoutAGpu) {
  for (const auto& file : fs::directory_iterator(place_.path())) {
    if (file.is_regular_file()) {
      EXPECT_LT(file.file_size(), 60u << 20) << file.path();
    }
  }
  ASSERT_EQ(check("first"), 0) << said();
  EXPECT_TRUE(mentions(said(), " 0 failed")) << said();
  const std::string report = place_.read("first/report.md");
  for (const char* part : {"tests of kernels", "gpt2-124m on the GPU", "memcheck of kernels", "bench of memory", "PyTorch beside"}) {
    EXPECT_TRUE(mentions(report, std::string("| ") + part + " | skipped: ")) << part << " in\n" << report;
  }

  // What fails is said, and all the rest is run all the same; a folder can be used again.
  fs::remove(place_ / "unpacked/bin/test_kernels");
  place_.write("unpacked/bin/test_kernels", "#!/bin/sh\necho it broke\nexit 3\n");
  fs::permissions(place_ / "unpacked/bin/test_kernels", fs::perms::owner_all);
  ASSERT_EQ(check("first"), 1) << said();
  EXPECT_TRUE(mentions(said(), "failed: tests of kernels")) << said();
  const std::string second = place_.read("first/report.md");
  EXPECT_TRUE(mentions(second, "| tests of kernels | FAILED: 0 tests, and AttentionTwins ended with 3")) << second;
  EXPECT_TRUE(mentions(second, "it broke")) << second;
  EXPECT_TRUE(mentions(second, "| PyTorch beside | skipped: ")) << second;
}

}  // namespace
}  // namespace spillway::test::gpu_check_test
