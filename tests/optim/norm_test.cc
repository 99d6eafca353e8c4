// Compares the sum of squares of a tile with a naive model of its 64 lanes (to the
// bit), with long double (within a derived bound), and with torch's gradient clipping.
#include "optim/norm.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/optim/support_reference.h"
#include "tests/optim/support_values.h"

namespace spillway::optim::norm_test {
namespace {

using test::draw;
using test::same;
using test::Values;

template <class T>
double model(std::span<const T> tile) {
  std::vector<double> lanes(64, 0.0);
  for (size_t i = 0; i < 16384; ++i) {  // the loop pads the tile with zeros to 16,384 elements
    const double x = i < tile.size() ? static_cast<double>(tile[i]) : 0.0;
    lanes[i % 64] += x * x;
  }
  for (; lanes.size() > 1; lanes.resize(lanes.size() / 2)) {
    for (size_t lane = 0; lane < lanes.size() / 2; ++lane) lanes[lane] += lanes[lane + lanes.size() / 2];
  }
  return lanes[0];
}

TEST(TileSquareSum, AddsInTheDocumentedOrder) {
  std::vector<float> tile(16384, 0.0f);
  // the square of this number is 2^54; fp64 numbers of that size are 4 apart, so adding ones to it one at a time loses them
  tile[0] = 134217728.0f;
  tile[64] = tile[128] = tile[192] = 1;
  EXPECT_EQ(tile_square_sum(tile), 0x1p54);
  tile[1] = tile[33] = tile[5] = tile[7] = 1;  // these four ones are first added to each other in lane 1, so lane 0 gets them as one four
  EXPECT_EQ(tile_square_sum(tile), 0x1p54 + 4);
}

TEST(TileSquareSum, IsNearTheExactSum) {
  // A lane (partial sum) adds 256 squares with 255 rounding errors (the first addition is exact). Then the lanes are added up pairwise in 6
  // rounds. All terms are positive, so the relative error is at most 261 u (1 + tiny). Squares of fp64 values add one more. Long double's
  // own error is 2^11 times smaller.
  std::mt19937_64 random(31);
  const auto f32 = draw<float>(16384, Values::ordinary, random);
  const auto f64 = draw<double>(16384, Values::ordinary, random);
  long double exact32 = 0, exact64 = 0;
  for (float x : f32) exact32 += static_cast<long double>(x) * x;
  for (double x : f64) exact64 += static_cast<long double>(x) * x;
  EXPECT_LT(std::abs(tile_square_sum(f32) - exact32), 261 * 0x1p-53L * exact32 * 1.01L + 16384 * 0x1p-64L * exact32);
  EXPECT_LT(std::abs(tile_square_sum(f64) - exact64), 262 * 0x1p-53L * exact64 * 1.01L + 16384 * 0x1p-64L * exact64);
}

TEST(TileSquareSum, PassesNonFiniteValues) {
  std::vector<float> tile(100, 1.0f);
  tile[77] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tile_square_sum(tile), std::numeric_limits<double>::infinity());
  tile[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(tile_square_sum(tile)));
}

TEST(TileSquareSum, KeepsWhatFp32WouldLose) {
  EXPECT_EQ(tile_square_sum(std::vector<float>{1e-30f, 1e30f}), static_cast<double>(1e30f) * 1e30f);
  EXPECT_EQ(tile_square_sum(std::vector<float>{0x1p-149f}), 0x1p-298);
  EXPECT_EQ(tile_square_sum(std::vector<float>{}), 0);
}

// Checks that a bf16 gradient has the norm of the same numbers in fp32, to the bit.
void equals_widened(Isa isa) {
  std::mt19937_64 random(33);
  for (size_t length : {size_t{16384}, size_t{16383}, size_t{200}, size_t{63}, size_t{0}}) {
    std::vector<BFloat16> narrow(length);
    std::vector<float> wide(length);
    for (size_t i = 0; i < length; ++i) {
      // The numbers include denormals and have both signs. Their squares are finite in fp64.
      narrow[i].bits = static_cast<u16>(random() % 0x7f00 | random() % 2 << 15);
      wide[i] = std::bit_cast<float>(static_cast<u32>(narrow[i].bits) << 16);
    }
    EXPECT_EQ(tile_square_sum(narrow, isa), model<float>(wide)) << length;
  }
}

TEST(TileSquareSum, RefusesMoreThanATile) { EXPECT_THROW(tile_square_sum(std::vector<float>(16385)), Error); }

template <class T>
void equals_model(Isa isa) {
  std::mt19937_64 random(32);
  for (Values kind : test::kAllValues) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto values = draw<T>(16384 + 16, kind, random);
      const std::span<const T> all(values);
      for (size_t length : {size_t{16384}, size_t{16383}, static_cast<size_t>(random() % 16385)}) {
        const auto tile = all.subspan(random() % 16, length);
        ASSERT_TRUE(same(tile_square_sum(tile, isa), model(tile))) << length;
      }
    }
  }
  const auto values = draw<T>(300 + 16, Values::ordinary, random);
  for (size_t length = 0; length <= 300; ++length) {
    for (size_t offset = 0; offset < 16; ++offset) {
      const auto tile = std::span<const T>(values).subspan(offset, length);
      ASSERT_TRUE(same(tile_square_sum(tile, isa), model(tile))) << length;
    }
  }
}

TEST(TileSquareSum, ScalarEqualsTheLaneModel) {
  equals_model<float>(Isa::scalar);
  equals_model<double>(Isa::scalar);
  equals_widened(Isa::scalar);
}

class TileSquareSumPath : public test::FastPath {};
TEST_P(TileSquareSumPath, EqualsTheLaneModelF32) { equals_model<float>(GetParam()); }
TEST_P(TileSquareSumPath, EqualsTheLaneModelF64) { equals_model<double>(GetParam()); }
TEST_P(TileSquareSumPath, EqualsTheLaneModelBf16) { equals_widened(GetParam()); }
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TileSquareSumPath);  // a CPU that has only the scalar path instantiates no test
INSTANTIATE_TEST_SUITE_P(Isa, TileSquareSumPath, testing::ValuesIn(available_isas().subspan(1)), test::isa_name);

// Compares clipping with torch, which computes the f32 norm in fp32, as a norm of norms, with
// at most about 50 rounding errors of 2^-24. The scale and each product are rounded once more.
template <class T>
void clips_like_torch(const std::string& name, double clip) {
  const test::Reference reference("grad_clipping.safetensors");
  const std::string base = name + (sizeof(T) == 4 ? "/f32" : "/f64");
  const double tolerance = 50 * std::numeric_limits<T>::epsilon() / 2;
  double squares = 0;
  for (const char* i : {"0", "1", "2"}) squares += tile_square_sum(reference.get<T>(base + "/in/" + i));
  const double norm = std::sqrt(squares), expected = reference.get<double>(base + "/norm")[0];
  EXPECT_NEAR(norm, expected, tolerance * expected) << base;
  const T factor = static_cast<T>(clip_factor(norm, clip));
  for (const char* i : {"0", "1", "2"}) {
    const auto in = reference.get<T>(base + "/in/" + i), out = reference.get<T>(base + "/out/" + i);
    for (size_t k = 0; k < in.size(); ++k) EXPECT_NEAR(in[k] * factor, out[k], 2 * tolerance * std::abs(out[k])) << base;
  }
}

TEST(ClipFactor, FollowsTorch) {
  const std::pair<const char*, double> cases[] = {
      {"above", 1.0}, {"below", 14.043861389160156}, {"just_equal", 7.021930694580078}, {"tiny_grads", 1e-9}, {"zero_grads", 1.0}};
  for (const auto& [name, clip] : cases) {
    clips_like_torch<float>(name, clip);
    clips_like_torch<double>(name, clip);
  }
}

TEST(ClipFactor, Limits) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(clip_factor(123, 0), 1);  // a clipping threshold of 0 turns clipping off
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(infinity, 1), 0);
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1)));
}

}  // namespace
}  // namespace spillway::optim::norm_test
