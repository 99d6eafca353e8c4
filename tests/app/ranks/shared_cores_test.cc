// Tests what the program says before it starts more ranks than there are cores.
#include <gtest/gtest.h>

#include "tests/app/support_app.h"

namespace spillway::app::shared_cores_test {
namespace {

// The machine has 8 cores. The data is missing, so that nothing is trained; the warning comes before that error.
TEST(SharedCores, AreSaidBeforeTheRanksStart) {
  const TemporaryFolder folder;
  const auto start = [&](const char* ranks) {
    return run_app({"train", "--model", "gpt2-tiny", "--data", (folder.path() / "missing.txt").string(), "--device", "cpu",
                    "--communicator", "local", "--ranks", ranks, "--out", (folder.path() / "run").string()},
                   FakeHost().host());
  };
  const Outcome outcome = start("16");
  EXPECT_NE(outcome.status, 0);
  const size_t warning = outcome.err.find("16 ranks share 8 cores"), error = outcome.err.find("missing.txt");
  EXPECT_TRUE(warning != std::string::npos && error != std::string::npos && warning < error) << outcome.err;
  EXPECT_EQ(start("2").err.find("share"), std::string::npos);
}

}  // namespace
}  // namespace spillway::app::shared_cores_test
