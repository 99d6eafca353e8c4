#include "data/loader/own_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/loader/loader.h"

namespace spillway::data::own_samples_test {
namespace {

// Samples of one number, which is the sample's index unless it is replaced. They count how far they are read.
class Numbers final : public TensorSource {
 public:
  Numbers(i64 samples, bool is_stream, i64 replaced = -1) : samples_(samples), is_stream_(is_stream), replaced_(replaced) {}
  i64 samples() const override { return samples_; }
  bool is_stream() const override { return is_stream_; }
  void read(i64 index, std::span<const Tensor> out) const override {
    farthest = std::max(farthest, index);
    out[0].span<float>()[0] = index == replaced_ ? -1.0f : static_cast<float>(index);
  }
  mutable i64 farthest = 0;

 private:
  const i64 samples_;
  const bool is_stream_;
  const i64 replaced_;
};

Loader loader_of(const std::shared_ptr<const Numbers>& source, const LoaderOptions& options = {.shuffled = false}) {
  return Loader(samples_of(source, {{"x", Shape({1}), DType::f32}}), options);
}

TEST(OwnSamples, ABatchKnowsHowManyOfItsRowsHoldSamples) {
  const Loader loader = loader_of(std::make_shared<Numbers>(5, false), {.micro_batch_size = 2, .micro_batches = 2, .shuffled = false});
  std::vector<i64> samples;
  std::set<u64> numbers;
  for (const i64 cursor : {0, 4, 0}) {
    for (const MicroBatch& batch : loader.step(cursor).micro_batches) {
      samples.push_back(batch.samples);
      numbers.insert(batch.number);
      const std::span<const u8> mask = batch.row_mask_B.span<u8>();
      EXPECT_EQ(std::ranges::count(mask, u8{1}), batch.samples);
      EXPECT_TRUE(std::ranges::is_sorted(mask, std::greater())) << "samples stand before the padding";
    }
  }
  EXPECT_EQ(samples, (std::vector<i64>{2, 2, 1, 0, 2, 2}));
  EXPECT_EQ(numbers.size(), samples.size()) << "each batch has a number of its own";
  EXPECT_FALSE(numbers.contains(0)) << "which batches of made-up numbers have";
}

TEST(OwnSamples, AStreamIsJudgedByItsFirstSamples) {
  const auto long_one = std::make_shared<Numbers>(i64{1} << 40, true);
  const std::string whole = loader_of(long_one).fingerprint();
  EXPECT_EQ(long_one->farthest, 31);
  EXPECT_EQ(loader_of(std::make_shared<Numbers>(100, true)).fingerprint(), whole) << "however many samples a run takes of it";
  EXPECT_EQ(loader_of(std::make_shared<Numbers>(100, true, 32)).fingerprint(), whole);
  EXPECT_NE(loader_of(std::make_shared<Numbers>(100, true, 31)).fingerprint(), whole);
  EXPECT_NE(loader_of(std::make_shared<Numbers>(100, false)).fingerprint(), loader_of(std::make_shared<Numbers>(101, false)).fingerprint());
  EXPECT_NE(loader_of(std::make_shared<Numbers>(100, false, 99)).fingerprint(),
            loader_of(std::make_shared<Numbers>(100, false)).fingerprint());
}

}  // namespace
}  // namespace spillway::data::own_samples_test
