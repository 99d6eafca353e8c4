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

TEST(NearestWords, BeginWithTheWordOrAreAFewEditsAway) {
  using Words = std::vector<std::string>;
  const Words known = {"gpt2-tiny", "gpt2-124m", "vgg11", "lenet", "learning-rate", "steps", "lora", "llama3-8b"};
  EXPECT_EQ(nearest_words("gpt2", known), (Words{"gpt2-tiny", "gpt2-124m"})) << "vgg11 is as near as these in edits of one letter";
  EXPECT_EQ(nearest_words("learning_rate", known), Words{"learning-rate"});
  EXPECT_EQ(nearest_words("GPT2Tiny", known), Words{"gpt2-tiny"});
  EXPECT_EQ(nearest_words("leraning-rat", known), Words{"learning-rate"});
  EXPECT_EQ(nearest_words("stepz", known), Words{"steps"});
  EXPECT_EQ(nearest_words("llama-8b", known), Words{"llama3-8b"});
  EXPECT_EQ(nearest_words("t.txt", known), Words{});
  EXPECT_EQ(nearest_words("model.gguf", known), Words{});
  EXPECT_EQ(nearest_words("l", known), Words{});
  EXPECT_EQ(nearest_words("", known), Words{});
  EXPECT_EQ(nearest_words("ab1", {"ab11", "ab12", "ab13", "ab14", "ab15"}).size(), 4u);
  EXPECT_EQ(nearest_words("fp33", {"fp32", "fp64", "fp16"}), Words{"fp32"});
  EXPECT_EQ(nearest_words("cat", {"car", "bat", "dog"}), (Words{"car", "bat"})) << "both are one edit away";
}

TEST(EitherOf, JoinsAlternatives) {
  EXPECT_EQ(either_of({}), "");
  EXPECT_EQ(either_of({"a"}), "a");
  EXPECT_EQ(either_of({"a", "b"}), "a or b");
  EXPECT_EQ(either_of({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace spillway::edit_distance_test
