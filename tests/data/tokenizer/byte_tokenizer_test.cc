#include "data/tokenizer/byte_tokenizer.h"

#include <gtest/gtest.h>

namespace spillway::data::byte_tokenizer_test {
namespace {

TEST(ByteTokenizer, RoundTripOfEveryByte) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  const ByteTokenizer tokenizer;
  const auto ids = tokenizer.encode(text);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(ByteTokenizer, PiecesMayBeJoinedInsideACharacter) {
  const ByteTokenizer tokenizer;
  const auto ids = tokenizer.encode("ä€");
  std::string joined;
  for (const i32 id : ids) joined += tokenizer.decode({&id, 1});
  EXPECT_EQ(joined, "ä€");
}

TEST(ByteTokenizer, IdsThatAreNoByteBecomeTheReplacementCharacter) {
  EXPECT_EQ(ByteTokenizer().decode(std::vector<i32>{'a', 256, 50256, -100, 'b'}), "a\uFFFD\uFFFD\uFFFDb");
}

}  // namespace
}  // namespace spillway::data::byte_tokenizer_test
