// Tests the check of addresses before a loop that sanitizers do not instrument. Only a build with AddressSanitizer can detect anything.
#include "base/sanitizers.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::test::sanitizers_test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
TEST(ExpectAddressable, ReportsWhatLiesBeforeAndBehind) {
  const std::vector<float> values(100);
  expect_addressable(values.data(), 100);
  expect_addressable(values.data() + 100, 0);
  EXPECT_DEATH(expect_addressable(values.data(), 101), "AddressSanitizer: heap-buffer-overflow");
  EXPECT_DEATH(expect_addressable(values.data() - 1, 2), "AddressSanitizer: heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace spillway::test::sanitizers_test
