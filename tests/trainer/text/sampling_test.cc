// Compares the distribution that tokens are drawn from with that of
// transformers' logits processors. Also tests texts that end at a stop word.
#include "trainer/text/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/random.h"
#include "data/safetensors/safetensors.h"
#include "tests/support/fixtures.h"

namespace spillway::trainer::sampling_test {
namespace {

struct Reference {
  const data::SafetensorsReader file{test::data("generate/distributions-llama-tiny.safetensors")};
  std::vector<double> row(const std::string& name, i64 b) const {
    const data::TensorInfo& info = *file.find(name);
    std::vector<double> values(static_cast<size_t>(info.shape[1]));
    file.read_wide(info, b * info.shape[1], values);
    return values;
  }
  std::vector<i32> seen(i64 b) const {
    const data::TensorInfo& info = *file.find("input_ids");
    std::vector<i64> ids(static_cast<size_t>(info.shape[1]));
    file.read(info, b * info.shape[1] * 8, std::as_writable_bytes(std::span(ids)));
    return {ids.begin(), ids.end()};
  }
};

TEST(Sampling, DrawsFromTransformersDistributions) {
  const Reference reference;
  const auto info = nlohmann::json::parse(reference.file.metadata().at("info"));
  int compared = 0;
  for (const auto& [name, how] : info["cases"].items()) {
    Sampling sampling{.temperature = how.value("temperature", 1.0), .top_k = how.value("top_k", i64{0}), .top_p = how.value("top_p", 1.0)};
    sampling.min_p = how.value("min_p", 0.0), sampling.repetition_penalty = how.value("repetition_penalty", 1.0);
    for (i64 b = 0; b < 3; ++b) {
      const std::vector<double> want = reference.row("f64/probs/" + name, b);
      std::vector<double> got(want.size());
      double total = 0, last = 1;
      for (const auto& [share, id] : distribution(reference.row("f64/logits", b), reference.seen(b), sampling)) {
        got[static_cast<size_t>(id)] = share;
        total += share;
        EXPECT_LE(share, last) << "the likeliest first";
        last = share;
      }
      EXPECT_NEAR(total, 1, 1e-12);
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-11) << name << " row " << b << " token " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 45);
}

TEST(Sampling, IsGreedyAtZeroAndASeedsOwn) {
  const std::vector<double> logits{0.5, 2, 2, -1};
  EXPECT_EQ(sample_token(logits, {}, {.temperature = 0}, 0), 1) << "of equal ones the lower id";
  const std::vector<i32> seen{1};
  EXPECT_EQ(sample_token(logits, seen, {.temperature = 0, .repetition_penalty = 1.5}, 0), 2);
  std::map<i32, int> drawn;
  for (i64 n = 0; n < 4000; ++n) ++drawn[sample_token(logits, {}, {.temperature = 1}, n)];
  for (const auto& [share, id] : distribution(logits, {}, {.temperature = 1}))
    EXPECT_NEAR(drawn[id] / 4000.0, share, 4 * std::sqrt(share / 4000)) << id;
  EXPECT_EQ(sample_token(logits, {}, {.seed = 5}, 9), sample_token(logits, {}, {.seed = 5}, 9));
}

// Sampling sorts a large vocabulary only as far as a draw needs. The drawn tokens must equal those from a complete sort.
TEST(Sampling, OrderIsThatOfASortOfAll) {
  std::vector<double> logits(5000);
  // each value occurs about eight times, since the numbers repeat
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<double>(i * 7919 % 613) / 100;
  std::vector<i32> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, std::greater(), [&](i32 id) { return logits[static_cast<size_t>(id)]; });
  const auto all = distribution(logits, {}, {.temperature = 2});
  ASSERT_EQ(all.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(all[i].second, ids[i]) << i;
  size_t deepest = 0;
  for (i64 n = 0; n < 200; ++n) {
    const i32 drawn = sample_token(logits, {}, {.temperature = 2}, n);
    double left = uniform(RandomKey{Sampling().seed}.derive("sample"), 0, static_cast<u64>(n));
    size_t at = 0;
    while (at + 1 < all.size() && (left -= all[at].first) >= 0) ++at;
    EXPECT_EQ(drawn, ids[at]) << n;
    deepest = std::max(deepest, at);
  }
  EXPECT_GT(deepest, 2000u);
  logits[17] = std::nan("");
  for (i64 n = 0; n < 200; ++n) EXPECT_NE(sample_token(logits, {}, {.temperature = 2}, n), 17);
}

TEST(StopText, HoldsBackWhatMayEndIt) {
  StopText text({"###", "\nUser:", ""});
  EXPECT_EQ(text.put("Noah"), "Noah");
  EXPECT_EQ(text.put(" #"), " ");
  EXPECT_EQ(text.put("#"), "");
  EXPECT_EQ(text.put("x\nUs"), "##x");
  EXPECT_EQ(text.put("age\nUse"), "\nUsage");
  EXPECT_FALSE(text.stopped());
  EXPECT_EQ(text.put("r: more###"), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.put("nothing"), "");
  EXPECT_EQ(text.finish(), "");
  StopText open({"abc"});
  EXPECT_EQ(open.put("xab"), "x");
  EXPECT_EQ(open.finish(), "ab");
}

}  // namespace
}  // namespace spillway::trainer::sampling_test
