#include "base/edit_distance.h"

#include <gtest/gtest.h>

namespace spillway::edit_distance_test {
namespace {

TEST(EditDistance, CountsTheFewestEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("gpt2tiny", "gpt2-tiny"), 1);
}

TEST(EditDistance, ASwapOfNeighboursIsOneEditAndEditsNoLetterTwice) {
  EXPECT_EQ(edit_distance("stpes", "steps"), 1);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3) << "swapping to ac and putting b between would edit twice";
}

}  // namespace
}  // namespace spillway::edit_distance_test
