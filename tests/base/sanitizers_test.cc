// Tests the check that code makes before a loop without sanitizer instrumentation: only AddressSanitizer builds detect a bad address.
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
