#include "tests/parallel/run/support_visit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "models/model.h"

namespace spillway::test {
namespace {

// Rounds a master weight to the nearest bf16, ties away from zero, as masters are rounded to weights.
float rounded(double master, DType dtype) {
  const auto value = static_cast<float>(master);
  return dtype != DType::bf16 ? value : std::bit_cast<float>((std::bit_cast<u32>(value) + 0x8000u) & 0xffff0000u);
}

}  // namespace

void expect_all_shown(RunOptions o) {
  const nn::Sequential model = models::build(o.model, o.dtype);
  std::vector<std::vector<float>> shown(model.parameters.size());
  std::mutex mutex;
  o.at_end = [&](parallel::Rank& rank) {
    for (const auto& p : model.parameters) {
      if (o.freeze && o.freeze(*p)) continue;
      rank.visit(p->id, [&](std::span<const float> weights, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < rank.threads()) << thread;
        EXPECT_TRUE(!weights.empty() && std::ssize(weights) <= parallel::kTileElems) << weights.size();
        const std::lock_guard lock(mutex);
        shown[p->id].insert(shown[p->id].end(), weights.begin(), weights.end());
      });
    }
  };
  const RunResult run = train(o);
  for (const auto& p : model.parameters) {
    if (o.freeze && o.freeze(*p)) continue;
    std::vector<float> want;
    for (const double master : run.weights[p->id]) want.push_back(rounded(master, o.dtype));
    ASSERT_EQ(std::ssize(want), p->elems()) << p->name;
    std::ranges::sort(want);
    std::ranges::sort(shown[p->id]);
    EXPECT_TRUE(shown[p->id] == want) << p->name << ": " << shown[p->id].size() << " of " << want.size();
  }
}

}  // namespace spillway::test
