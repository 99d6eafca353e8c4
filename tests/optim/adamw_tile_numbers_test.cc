// Tests the numbers of AdamW's update of a tile: they follow the formula rounded operation by operation, the rounding noise
// is taken from where adamw_tile.h says, and rounded moments keep their expectation and still descend to the minimum.
#include <gtest/gtest.h>

#include <functional>

#include "tests/optim/support_tile.h"

namespace spillway::optim::adamw_tile_numbers_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

float widen_upper(u32 upper) { return std::bit_cast<float>(upper << 16); }

// Holds an element of the fp32 formula. Each operation is done in fp64 and then correctly rounded (53 >= 2 * 24 + 2 bits).
struct Element {
  float master, m, v;
};
Element formula(Element old, float gradient, const Scalars<double>& exact) {
  const auto r = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  const double g = r(gradient * r(exact.gradient_scale)), decayed = r(old.master * r(exact.decay));
  const double m = r(old.m + r(r(g - old.m) * r(exact.one_minus_beta1)));
  const double v = r(r(old.v * r(exact.beta2)) + r(r(exact.one_minus_beta2) * r(g * g)));
  const double root = r(r(r(std::sqrt(v)) / r(exact.root_correction2)) + r(exact.eps));
  return {static_cast<float>(decayed - r(r(exact.step_size) * r(m / root))), static_cast<float>(m), static_cast<float>(v)};
}

float stochastic_bf16(float x, u32 noise) {
  if (std::isnan(x)) return x;
  return widen_upper((std::bit_cast<u32>(x) + noise) >> 16);
}

TEST(AdamWTileNumbers, Bf16IsTheFormulaRounded) {
  const StateFormat f{DType::bf16, Master::split, Moments::bf16, DType::bf16};
  const RoundingNoise noise{{99}, 12, 5 * kTileElems};
  const auto s = make_adamw_scalars<double>({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 3e-2, 0.1, 12, 0.37);
  const TilePart whole{kTileElems, &s};
  std::mt19937_64 random(61);
  for (Values kind : {Values::ordinary, Values::tiny, Values::huge}) {
    const Tile old = random_tile(f, kind, random);
    Tile next(f);
    const AlignedBytes gradient = random_gradient(f, kind, random);
    adamw_update_tile(f, {gradient.data(), old.weight.data(), old.state.data(), next.weight.data(), next.state.data()}, {&whole, 1}, noise);
    const auto master = read(f, StatePart::master, old), m = read(f, StatePart::first, old), v = read(f, StatePart::second, old);
    const auto new_master = read(f, StatePart::master, next), new_m = read(f, StatePart::first, next),
               new_v = read(f, StatePart::second, next);
    for (u64 i = 0; i < kTileElems; ++i) {
      u16 gradient_bits, weight_bits;
      std::memcpy(&gradient_bits, gradient.data() + 2 * i, 2), std::memcpy(&weight_bits, next.weight.data() + 2 * i, 2);
      const Element expected = formula({master[i], m[i], v[i]}, widen_upper(gradient_bits), s);
      const u64 e = noise.first_element + i;
      const u32 word = philox(noise.key, noise.t, 16 * (e / 64) + e % 16)[(e / 16) % 4];
      ASSERT_TRUE(test::same(new_master[i], expected.master)) << i;
      ASSERT_TRUE(test::same(new_m[i], stochastic_bf16(expected.m, word & 0xffff))) << i;
      ASSERT_TRUE(test::same(new_v[i], stochastic_bf16(expected.v, word >> 16))) << i;
      // The weight is the bf16 nearest to the master, ties away from zero: no bf16 is nearer, and a tie
      // went outwards. The neighbour beyond the largest finite bf16 is infinity, which is not compared.
      const double weight = widen_upper(weight_bits), exact = expected.master;
      if (!std::isfinite(weight)) continue;
      const double inner = weight_bits & 0x7fff ? widen_upper(weight_bits - 1u) : -weight, outer = widen_upper(weight_bits + 1u);
      ASSERT_LE(std::abs(exact - weight), std::abs(exact - inner)) << i;
      ASSERT_TRUE(std::isinf(outer) || std::abs(exact - weight) < std::abs(exact - outer)) << i;
    }
  }
}

/// Makes `steps` updates of a tile whose masters begin at `start`, with gradients computed from the current masters.
Tile descend(const StateFormat& f, const AdamWSettings& settings, const std::function<double(i64)>& learning_rate, i64 steps,
             const std::vector<double>& start,
             const std::function<void(i64 t, const std::vector<float>& w, float* gradient)>& gradient_of) {
  Tile tile(f);
  write_tile<double>(f, {start, {}, {}}, tile.weight.data(), tile.state.data());
  const AlignedBytes gradient(f.gradient_tile_bytes());
  for (i64 t = 1; t <= steps; ++t) {
    gradient_of(t, read(f, StatePart::master, tile), reinterpret_cast<float*>(gradient.data()));
    const auto s = make_adamw_scalars<double>(settings, learning_rate(t), settings.weight_decay, t, 1);
    const TilePart whole{kTileElems, &s};
    adamw_update_tile(f, {gradient.data(), tile.weight.data(), tile.state.data(), tile.weight.data(), tile.state.data()}, {&whole, 1},
                      {{7}, static_cast<u64>(t), 0});
  }
  return tile;
}

// Once v (AdamW's second moment) passes 0.25, each update changes v by less than half the spacing of bf16, so rounding to nearest would
// stop it there. In 8 bits a spacing is seven steps wide. The mean of 8000 elements, each off by at most one spacing (0.8 %), is accurate
// to 1e-4. The test requires 0.5 %.
TEST(AdamWTileNumbers, StochasticRoundingKeepsTheExpectation) {
  for (Moments moments : {Moments::bf16, Moments::int8}) {
    const StateFormat f{DType::bf16, Master::fp32, moments};
    const Tile tile = descend(
        f, {.beta1 = 0.9, .beta2 = 0.999}, [](i64) { return 1e-3; }, 1500, std::vector<double>(kTileElems),
        [](i64, const std::vector<float>&, float* g) {
          for (i64 i = 0; i < kTileElems; ++i) g[i] = i % 2 ? 1.0f : -0.5f;
        });
    const auto m = read(f, StatePart::first, tile), v = read(f, StatePart::second, tile);
    const double grown = 1 - std::pow(0.999, 1500);
    double mean_m[2] = {}, mean_v[2] = {};
    for (size_t i = 0; i < kTileElems; ++i) mean_m[i % 2] += m[i] * 2.0 / kTileElems, mean_v[i % 2] += v[i] * 2.0 / kTileElems;
    EXPECT_NEAR(mean_m[1], 1, 0.005);
    EXPECT_NEAR(mean_m[0], -0.5, 0.0025);
    EXPECT_NEAR(mean_v[1], grown, 0.005 * grown);
    EXPECT_NEAR(mean_v[0], 0.25 * grown, 0.005 * 0.25 * grown);
  }
}

// Returns how far from its minimum a descent with these moments ends. The function is quadratic
// with curvatures over three decades in every block of 8-bit moments, and gradients are noisy.
double distance_from_minimum(Moments moments) {
  std::mt19937_64 random(62);
  const auto minimum = test::draw<float>(kTileElems, Values::ordinary, random);
  std::vector<double> start(kTileElems);
  const Tile tile = descend(
      {DType::bf16, Master::split, moments}, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0},
      [](i64 t) { return 0.02 * (1 - 0.0025 * static_cast<double>(t - 1)); }, 400, start,
      [&](i64, const std::vector<float>& w, float* g) {
        std::normal_distribution<float> noise(0, 0.3f);
        for (size_t i = 0; i < kTileElems; ++i)
          g[i] = std::pow(10.0f, -3.0f * static_cast<float>(i % 100) / 100) * (w[i] - minimum[i] + noise(random));
      });
  const auto w = read({DType::bf16, Master::split, moments}, StatePart::master, tile);
  double squares = 0;
  for (size_t i = 0; i < kTileElems; ++i) squares += std::pow(w[i] - minimum[i], 2);
  return std::sqrt(squares / kTileElems);
}

TEST(AdamWTileNumbers, RoundedMomentsDescendAsFarAsFp32) {
  const double fp32 = distance_from_minimum(Moments::fp32);
  EXPECT_LT(fp32, 0.1);  // the descent begins at a distance of 1 from the minimum
  EXPECT_LT(distance_from_minimum(Moments::bf16), 1.05 * fp32);
  EXPECT_LT(distance_from_minimum(Moments::int8), 1.25 * fp32);
}

}  // namespace
}  // namespace spillway::optim::adamw_tile_numbers_test
