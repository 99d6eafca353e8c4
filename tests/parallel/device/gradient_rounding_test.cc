// Tests gradients rounded to bf16. The rounding is compared with fp64 arithmetic, and the tier of a rounded gradient changes no bit.
#include "parallel/device/gradient_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "device/stream.h"
#include "models/presets.h"
#include "optim/bf16.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::gradient_rounding_test {
namespace {

using optim::kTileElems;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

// Returns the bf16 value nearest to x, ties to even, computed from distances in fp64.
float nearest_bf16(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  return static_cast<float>(std::nearbyint(static_cast<double>(x) / unit) * unit);
}

std::vector<float> some_gradients(i64 tiles) {
  std::vector<float> x(static_cast<size_t>(tiles * kTileElems));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(normal(RandomKey{5}, 0, i)) * std::ldexp(1.0f, static_cast<int>(i % 60) - 40);
  x[3] = 0, x[4] = -0.0f, x[5] = 1 + 0x1p-8f, x[6] = 1 + 3 * 0x1p-8f, x[7] = std::nextafter(1 + 0x1p-8f, 2.0f), x[8] = 0x1p-130f;
  return x;
}

TEST(GradientRounding, IsToNearestEvenInPlaceAndPacked) {
  for (const int threads : {1, 3}) {
    for (const i64 tiles : {1, 2, 3, 4, 7, 9}) {
      ThreadPool pool(threads);
      const Stream stream{Device::cpu(), &pool, nullptr};
      const StreamScope scope(stream);
      const std::vector<float> x = some_gradients(tiles);
      std::vector<float> in_place = x, packed = x;
      std::vector<double> sums(static_cast<size_t>(tiles)), packed_sums(sums.size());
      parallel::round_gradient(reinterpret_cast<std::byte*>(in_place.data()), DType::f32, sums);
      parallel::round_gradient(reinterpret_cast<std::byte*>(packed.data()), DType::bf16, packed_sums);
      const auto* halves = reinterpret_cast<const u16*>(packed.data());
      for (size_t i = 0; i < x.size(); ++i) {
        const float want = nearest_bf16(x[i]);
        ASSERT_EQ(std::bit_cast<u32>(in_place[i]), std::bit_cast<u32>(want)) << i << " of " << tiles << " tiles: " << x[i];
        ASSERT_EQ(std::bit_cast<u32>(optim::widen_bf16(halves[i])), std::bit_cast<u32>(want)) << i << " of " << tiles << " tiles, packed";
      }
      for (size_t t = 0; t < sums.size(); ++t) {
        const double want = optim::tile_square_sum(std::span<const float>(in_place).subspan(t * kTileElems, kTileElems));
        EXPECT_EQ(sums[t], want);
        EXPECT_EQ(packed_sums[t], want);
      }
    }
  }
}

TEST(GradientRounding, WhatIsNotFiniteStaysSo) {
  std::vector<float> x(kTileElems, 1);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::max(), std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xff800001)}) {
    x[77] = bad;
    std::vector<double> sums(1);
    parallel::round_gradient(reinterpret_cast<std::byte*>(x.data()), DType::f32, sums);
    EXPECT_FALSE(std::isfinite(sums[0])) << bad;
  }
}

RunOptions rounded_run(DType dtype, i64 micro_batches) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 2;
  o.sequence_length = 16;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.dtype = dtype;
  o.micro_batches = micro_batches;
  o.round_gradients = true;
  return o;
}

struct Where {
  Tier parameters, gradients, optimizer;
  OptimizerOverlap overlap;
  Order order;
};
constexpr Where kPlaces[] = {{Tier::device, Tier::host, Tier::host, OptimizerOverlap::none, Order::micro_batch},
                             {Tier::host, Tier::host, Tier::device, OptimizerOverlap::backward, Order::vertical},
                             {Tier::nvme, Tier::nvme, Tier::nvme, OptimizerOverlap::backward, Order::micro_batch},
                             {Tier::nvme, Tier::nvme, Tier::nvme, OptimizerOverlap::forward, Order::vertical},
                             {Tier::device, Tier::nvme, Tier::host, OptimizerOverlap::forward, Order::vertical}};

class RoundedGradients : public testing::TestWithParam<std::tuple<DType, i64>> {};

TEST_P(RoundedGradients, AreTheSameBitsAnywhere) {
  const RunOptions plain = rounded_run(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const RunResult want = train(plain);
  for (const Where& w : kPlaces) {
    RunOptions o = plain;
    o.parameters = w.parameters, o.gradients = w.gradients, o.optimizer = w.optimizer, o.overlap = w.overlap, o.order = w.order;
    o.threads = 2;
    expect_same_run(train(o), want);
  }
  RunOptions exact = plain;
  exact.round_gradients = false;
  EXPECT_NE(train(exact).norms, want.norms);
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundedGradients, testing::Combine(testing::Values(DType::f32, DType::bf16), testing::Values(1, 4)),
                         [](const auto& cell) {
                           return std::string(std::get<0>(cell.param) == DType::bf16 ? "bf16" : "f32") + "_K" +
                                  std::to_string(std::get<1>(cell.param));
                         });

// Shows that rounding halves the bytes of gradients that move once per step. GPT-2's head shares its matrix with the embedding. The
// gradient that the head computes is added to later by the embedding. It alone keeps four bytes per element.
TEST(GradientRounding, HalvesWhatTravelsOnceAStep) {
  const auto moved = [](bool round, Order order, i64 micro_batches) {
    RunOptions o = rounded_run(DType::f32, micro_batches);
    o.round_gradients = round;
    o.gradients = Tier::host;
    o.order = order;
    o.steps = 1;
    const RunResult r = train(o);
    return std::pair(r.moved.written[1], r.plan.layout.elems());
  };
  for (const auto& [order, micro_batches] : {std::pair(Order::micro_batch, i64{1}), {Order::vertical, i64{4}}}) {
    const auto [exact_bytes, elems] = moved(false, order, micro_batches);
    EXPECT_EQ(exact_bytes, 4 * elems);
    EXPECT_EQ(moved(true, order, micro_batches).first, 2 * elems);
  }
  EXPECT_EQ(moved(true, Order::micro_batch, 4).first, moved(false, Order::micro_batch, 4).first);
}

}  // namespace
}  // namespace spillway::test::gradient_rounding_test
