#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace spillway::crc32c_test {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Computes CRC-32C bit by bit, as its polynomial defines it.
u32 by_definition(std::span<const std::byte> bytes) {
  u32 crc = ~u32{0};
  for (const std::byte byte : bytes) {
    crc ^= static_cast<u32>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

// The expected values are those of RFC 3720 B.4, and the check value that catalogues of CRCs list for CRC-32C.
TEST(Crc32c, KnownValues) {
  std::vector<std::byte> ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
}

TEST(Crc32c, AgreesWithItsDefinitionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(9000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const size_t length : {1, 7, 8, 15, 16, 63, 64, 255, 511, 1024, 4096, 8191}) {
    for (size_t begin = 0; begin < 9; ++begin) {
      const auto part = std::span<const std::byte>(bytes).subspan(begin, length);
      ASSERT_EQ(crc32c(part), by_definition(part)) << length << " bytes from " << begin;
    }
  }
}

TEST(Crc32c, IsTheSumOfPiecesInAnyOrder) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(70000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> block(bytes);
  std::vector<size_t> cuts{0, 1, 5, 4096, 4097, 20000, 65536, 69999, bytes.size()};
  std::vector<size_t> order(cuts.size() - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  u32 sum = crc32c_of_zeros(static_cast<i64>(block.size()));
  for (const size_t n : order) {
    sum ^= crc32c_share(block.subspan(cuts[n], cuts[n + 1] - cuts[n]), static_cast<i64>(block.size() - cuts[n + 1]));
  }
  EXPECT_EQ(sum, crc32c(block));
  EXPECT_EQ(crc32c_of_zeros(70000), crc32c(std::vector<std::byte>(70000)));
  EXPECT_EQ(crc32c_of_zeros(0), crc32c({}));
}

}  // namespace
}  // namespace spillway::crc32c_test
