// Tests generation: text is read and generated twice, with the key/value cache on the device and with the cache in host memory, and the
// logits are compared.
#pragma once
#include <gtest/gtest.h>

#include <numeric>

#include "device/memory_source.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

struct Written {
  std::vector<std::vector<double>> logits;  // the logits of each pass in turn
  parallel::Plan plan;
  std::array<i64, 2> peak_bytes{};  // peak use of the device's pool and of the host's pool
};

/// Runs two rows through a model and returns their logits. A pass computes 16 positions or one. Some passes go back to an earlier
/// position and continue from there.
inline Written written(const models::ModelConfig& config, DType dtype, parallel::Tier cache, bool on_gpu) {
  const nn::Sequential model = models::build(config, dtype);
  RunOptions o;
  o.dtype = dtype;
  o.on_gpu = on_gpu;
  o.sequence_length = 16;
  parallel::PlanRequest request = plan_request(model, o, 0, 0);
  request.training = false;
  request.cache_positions = 64;
  request.placement.cache = cache;
  Written result;
  result.plan = make_plan(request);
  MemoryPool device("device", result.plan.total[0], "", on_gpu ? gpu_memory(0, result.plan.total[0]) : system_memory());
  MemoryPool host("host", result.plan.total[1], "", on_gpu ? pinned_memory() : system_memory());
  ThreadPool threads(1);
  parallel::Resources resources{&device, &host, &threads, nullptr, {}, "test"};
  parallel::Rank rank(model, result.plan, resources);
  rank.load([](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
  i32 next = 0;
  const auto pass = [&](i64 begin, i64 positions) {
    const StreamScope scope(rank.input_stream());
    const Shape shape{2, positions};
    MicroBatch batch{
        .tokens_BT = empty(shape, DType::int32), .targets_BT = empty(shape, DType::int32), .positions_BT = empty(shape, DType::int32)};
    std::ranges::fill(batch.targets_BT.span<i32>(), kIgnoredTarget);
    for (i32& token : batch.tokens_BT.span<i32>()) token = next = (next * 37 + 11) % static_cast<i32>(config.vocabulary);
    for (i64 row = 0; row < 2; ++row) {
      i32* places = batch.positions_BT.data<i32>() + row * positions;
      std::iota(places, places + positions, static_cast<i32>(begin));
    }
    result.logits.push_back(rank.next_logits(batch, begin));
  };
  for (const auto& [begin, positions] : {std::pair{0, 16}, {16, 16}, {32, 1}, {33, 1}, {34, 16}, {20, 1}, {21, 16}, {37, 1}})
    pass(begin, positions);
  result.peak_bytes = {device.peak_bytes(), host.peak_bytes()};
  return result;
}

/// Checks that the logits are bitwise the same whichever tier holds the cache, and that the memory used is what the plans say.
inline void expect_the_place_of_the_cache_changes_no_bit(const models::ModelConfig& config, DType dtype, bool on_gpu) {
  const Written here = written(config, dtype, parallel::Tier::device, on_gpu), there = written(config, dtype, parallel::Tier::host, on_gpu);
  EXPECT_EQ(there.logits, here.logits);
  EXPECT_NE(here.logits[6], here.logits[4]) << "what went before counts";
  const i64 cache = here.plan.cache_bytes;
  EXPECT_GT(cache, 0);
  EXPECT_EQ(there.plan.cache_bytes, cache);
  EXPECT_EQ(there.plan.total[1], here.plan.total[1] + cache);
  EXPECT_LT(there.plan.total[0], here.plan.total[0]) << "a block's passes by, not all of them";
  for (const Written* one : {&here, &there}) {
    EXPECT_LE(one->peak_bytes[0], one->plan.total[0]);
    EXPECT_LE(one->peak_bytes[1], one->plan.total[1]);
  }
  EXPECT_GE(there.peak_bytes[1], cache);
}

}  // namespace spillway::test
