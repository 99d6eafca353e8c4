// Tests splits of a model's blocks over pipeline stages. Each computed split is compared with all possible splits of the same blocks.
#include "parallel/schedule/pipeline_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"

namespace spillway::parallel::pipeline_split_test {
namespace {

struct Judged {
  double longest = 0, squares = 0;
  i64 most_bytes = 0;
};

Judged judge(const std::vector<BlockCost>& blocks, const std::vector<u16>& begins) {
  Judged j;
  for (size_t s = 0; s < begins.size(); ++s) {
    double seconds = 0;
    i64 bytes = 0;
    for (size_t b = begins[s]; b < (s + 1 < begins.size() ? begins[s + 1] : blocks.size()); ++b)
      seconds += blocks[b].seconds, bytes += blocks[b].bytes;
    j.longest = std::max(j.longest, seconds);
    j.squares += seconds * seconds;
    j.most_bytes = std::max(j.most_bytes, bytes);
  }
  return j;
}

void for_all_splits(size_t blocks, size_t stages, const std::function<void(const std::vector<u16>&)>& body) {
  std::vector<u16> begins{0};
  const std::function<void()> go_on = [&] {
    if (begins.size() == stages) return body(begins);
    for (auto b = static_cast<u16>(begins.back() + 1); b < blocks; ++b) {
      begins.push_back(b);
      go_on();
      begins.pop_back();
    }
  };
  go_on();
}

TEST(PipelineSplit, IsTheShortestOfAllThatFit) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<BlockCost> blocks(2 + random() % 8);
    for (BlockCost& b : blocks) b = {static_cast<double>(1 + random() % 9), static_cast<i64>(1 + random() % 9)};
    for (size_t stages = 1; stages <= std::min<size_t>(4, blocks.size()); ++stages) {
      for (const i64 limit : {0, 12}) {
        double longest = std::numeric_limits<double>::infinity(), squares = longest;
        for_all_splits(blocks.size(), stages, [&](const std::vector<u16>& begins) {
          const Judged j = judge(blocks, begins);
          if ((limit > 0 && j.most_bytes > limit) || j.longest > longest) return;
          squares = j.longest < longest ? j.squares : std::min(squares, j.squares);
          longest = j.longest;
        });
        if (longest == std::numeric_limits<double>::infinity()) {
          EXPECT_THROW(split_blocks(blocks, static_cast<i64>(stages), limit), Error);
          continue;
        }
        const Judged got = judge(blocks, split_blocks(blocks, static_cast<i64>(stages), limit));
        EXPECT_DOUBLE_EQ(got.longest, longest);
        EXPECT_DOUBLE_EQ(got.squares, squares);
        EXPECT_LE(limit == 0 ? 0 : got.most_bytes, limit);
      }
    }
  }
}

// Shows that a split of the blocks into stages takes the time of the embedding and of the head into account. The head of a large vocabulary
// takes as long as several layers.
TEST(PipelineSplit, CountsTheEmbeddingAndTheHead) {
  std::vector<BlockCost> blocks(14, BlockCost{1, 1});
  blocks.front() = {0.1, 4};
  blocks.back() = {3, 4};
  EXPECT_EQ(split_blocks(blocks, 2), (std::vector<u16>{0, 8}));
  EXPECT_EQ(split_blocks(blocks, 3), (std::vector<u16>{0, 6, 11}));
  EXPECT_EQ(split_blocks(blocks, 1), (std::vector<u16>{0}));
  EXPECT_EQ(split_blocks(std::vector<BlockCost>(7, BlockCost{1, 1}), 3), (std::vector<u16>{0, 2, 4}));
}

TEST(PipelineSplit, RefusesWhatCannotBe) {
  const std::vector<BlockCost> blocks(3, BlockCost{1, 10});
  EXPECT_THROW(split_blocks(blocks, 4), Error);
  EXPECT_THROW(split_blocks(blocks, 0), Error);
  EXPECT_THROW(split_blocks(blocks, 3, 9), Error);
}

TEST(PipelineSplit, IsReadFromAList) {
  EXPECT_EQ(parse_split("1,4,4,1", 4, 10), (std::vector<u16>{0, 1, 5, 9}));
  EXPECT_EQ(parse_split("3", 1, 3), (std::vector<u16>{0}));
  for (const char* wrong : {"", "1,2", "1,,2", "0,3", "1,1,1", "2,x", "-1,4", "1, 2", "4", "1,2,", "99999999999999999999"})
    EXPECT_THROW(parse_split(wrong, 2, 4), Error) << wrong;
}

}  // namespace
}  // namespace spillway::parallel::pipeline_split_test
