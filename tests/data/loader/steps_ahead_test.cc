// Tests a loader's steps that are prepared ahead of their use by another thread.
#include "data/loader/steps_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "data/tokens/token_source.h"
#include "device/memory_pool.h"

namespace spillway::data::steps_ahead_test {
namespace {

// Serves tokens: the token at position i has the value i. From a given position on, reading fails.
class Tokens final : public TokenSource {
 public:
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return 1001; }
  void read(i64 begin, std::span<i32> out) const override {
    if (begin >= broken_from) throw Error(ErrorCode::io, "[test] no token " + std::to_string(begin));
    std::iota(out.begin(), out.end(), static_cast<i32>(begin));
    furthest = std::max(furthest.load(), begin);
  }
  mutable std::atomic<i64> furthest = 0;
  std::atomic<i64> broken_from = 1000;

 private:
  const std::string name_ = "tokens";
};

class StepsAheadTest : public testing::Test {
 protected:
  StepsAheadTest() {
    auto tokens = std::make_unique<Tokens>();
    tokens_ = tokens.get();
    sources_.push_back(std::move(tokens));
    loader_.emplace(sources_, LoaderOptions{.sequence_length = 10, .micro_batch_size = 2, .micro_batches = 2, .shuffled = false});
  }
  static std::vector<i32> tokens_of(const StepBatch& batch) {
    std::vector<i32> all;
    for (const MicroBatch& m : batch.micro_batches) all.insert(all.end(), m.tokens_BT.data<i32>(), m.tokens_BT.data<i32>() + 20);
    return all;
  }
  Tokens* tokens_ = nullptr;
  std::vector<std::unique_ptr<TokenSource>> sources_;
  std::optional<Loader> loader_;
};

TEST_F(StepsAheadTest, AreTheLoadersOwnAlsoAfterAJump) {
  StepsAhead ahead(*loader_, MemoryPool::heap());
  for (const i64 cursor : {0, 4, 8, 40, 44, 0, 4}) EXPECT_EQ(tokens_of(ahead.step(cursor)), tokens_of(loader_->step(cursor))) << cursor;
}

TEST_F(StepsAheadTest, TheNextIsMadeWithoutBeingAskedFor) {
  MemoryPool memory("ahead", kUnlimited);
  StepsAhead ahead(*loader_, memory);
  ahead.step(0);
  for (int i = 0; i < 2000 && tokens_->furthest < 80; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(tokens_->furthest, 80) << "the last target of the second step";
  EXPECT_GT(memory.peak_bytes(), 0);
}

TEST_F(StepsAheadTest, AnErrorComesWithTheStepThatMetIt) {
  StepsAhead ahead(*loader_, MemoryPool::heap());
  tokens_->broken_from = 41;
  EXPECT_NO_THROW(ahead.step(0));
  EXPECT_THROW(ahead.step(4), Error);
  tokens_->broken_from = 1000;
  EXPECT_EQ(tokens_of(ahead.step(4)), tokens_of(loader_->step(4)));
}

}  // namespace
}  // namespace spillway::data::steps_ahead_test
