// Provides a fixture for tests that need several GPUs. Only *cuda_test.cc files include this header.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "device/device_query.h"

namespace spillway::test {

/// The fixture gets as many GPUs as a suite's tests want from the emulator. With real GPUs the tests skip if there are fewer.
class GpusTest : public testing::Test {
 protected:
  void SetUp() override { want(4); }
  void want(size_t gpus) {
    if (const char* was = std::getenv(kName)) before_ = was;
    if (query_gpus().gpus.size() >= gpus) return;
    if (before_) ::setenv(kName, std::to_string(gpus).c_str(), 1);
    if (const size_t there = query_gpus().gpus.size(); there < gpus) GTEST_SKIP() << "needs " << gpus << " GPUs, there are " << there;
  }
  void TearDown() override {
    if (before_) ::setenv(kName, before_->c_str(), 1);
  }

 private:
  static constexpr const char* kName = "SPILLWAY_EMULATED_GPUS";
  std::optional<std::string> before_;
};

}  // namespace spillway::test
