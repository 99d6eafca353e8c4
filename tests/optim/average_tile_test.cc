// Tests the moving average of the weights, in every state format: its formula against
// fp64, which bytes it leaves alone, and that an update rule leaves it alone.
#include "optim/average_tile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "optim/rules/tile.h"
#include "tests/optim/support_tile.h"

namespace spillway::optim::average_tile_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

constexpr double kDecay = 0.97;

StateFormat with_average(StateFormat f) {
  f.average = true;
  return f;
}

std::vector<double> values(const StateFormat& f, StatePart part, const Tile& tile) {
  std::vector<double> all(kTileElems);
  read_part<double>(f, part, tile.weight.data(), tile.state.data(), 0, all);
  return all;
}

class AverageOf : public testing::TestWithParam<StateFormat> {};

// The tolerance for an averaged weight allows three roundings: those of the difference, the product and the sum.
TEST_P(AverageOf, GoesAShareOfTheWayToTheMaster) {
  const StateFormat f = with_average(GetParam());
  std::mt19937_64 random(11);
  Tile tile = test::averaged_tile(f, random);
  const Tile before = tile;
  average_tile(f, {tile.weight.data(), tile.state.data(), tile.state.data(), tile.state.data()}, kDecay);
  const auto w = values(f, StatePart::master, tile), a = values(f, StatePart::average, before), got = values(f, StatePart::average, tile);
  const double unit = f.weight == DType::f64 ? 0x1p-53 : 0x1p-24;
  for (size_t i = 0; i < w.size(); ++i) {
    const double step = (1 - kDecay) * (w[i] - a[i]), want = a[i] + step;
    // the factor 1.01 allows for the rounding error of 1 - decay
    ASSERT_NEAR(got[i], want, 1.01 * unit * (3 * std::abs(step) + std::abs(want))) << i;
  }
  EXPECT_NE(got, a);
}

TEST_P(AverageOf, LeavesTheRestAlone) {
  const StateFormat f = with_average(GetParam());
  std::mt19937_64 random(12);
  const Tile old = test::averaged_tile(f, random), step = test::averaged_tile(f, random);
  Tile into = step, in_place = step;
  std::memcpy(in_place.state.data() + f.average_begin_bytes(), old.state.data() + f.average_begin_bytes(),
              static_cast<size_t>(f.array_begin_bytes(0) - f.average_begin_bytes()));
  average_tile(f, {into.weight.data(), into.state.data(), old.state.data(), into.state.data()}, kDecay);
  average_tile(f, {in_place.weight.data(), in_place.state.data(), in_place.state.data(), in_place.state.data()}, kDecay);
  EXPECT_TRUE(into == in_place);
  for (size_t i = 0; i < into.state.size(); ++i) {
    const auto at = static_cast<i64>(i);
    if (at >= f.average_begin_bytes() && at < f.array_begin_bytes(0)) continue;
    ASSERT_EQ(into.state.data()[i], step.state.data()[i]) << i;
  }
  EXPECT_TRUE(into.weight == step.weight && into.weight.guard_holds() && into.state.guard_holds());
  EXPECT_THROW(average_tile(GetParam(), {into.weight.data(), into.state.data(), into.state.data(), into.state.data()}, kDecay), Error);
}

// An update rule gives the same numbers whether a tile has an average or not.
TEST_P(AverageOf, ARuleNeitherReadsNorWritesIt) {
  const StateFormat f = with_average(GetParam()), plain = GetParam();
  std::mt19937_64 random(13);
  const Tile old = test::averaged_tile(f, random);
  const auto part = [&](StatePart which) { return values(f, which, old); };
  Tile without(plain), with = old;
  write_tile<double>(plain, {part(StatePart::master), part(StatePart::first), part(StatePart::second)}, without.weight.data(),
                     without.state.data());
  const auto gradient = random_gradient(f, Values::ordinary, random);
  const auto s = make_adamw_scalars<double>({}, 1e-3, 0.1, 3, 1);
  const TilePart whole{kTileElems, &s};
  for (const auto& [format, tile] : {std::pair(&f, &with), std::pair(&plain, &without)}) {
    update_tile(*format, {gradient.data(), tile->weight.data(), tile->state.data(), tile->weight.data(), tile->state.data()}, {&whole, 1},
                {{1}, 3, 0});
  }
  EXPECT_EQ(values(f, StatePart::average, with), part(StatePart::average));
  for (const StatePart which : {StatePart::master, StatePart::first, StatePart::second})
    EXPECT_EQ(values(f, which, with), values(plain, which, without));
  EXPECT_TRUE(with.weight == without.weight);
}

std::string format_name(const testing::TestParamInfo<StateFormat>& info) { return test::name(info.param); }
INSTANTIATE_TEST_SUITE_P(Formats, AverageOf, testing::ValuesIn(test::all_formats()), format_name);

TEST(Average, TakesFourBytesOfAParameter) {
  for (const StateFormat& f : test::all_formats()) {
    const i64 each = f.weight == DType::f64 ? 8 : 4;
    EXPECT_EQ(with_average(f).state_tile_bytes(), f.state_tile_bytes() + each * kTileElems) << test::name(f);
  }
  StateFormat sgd = plain_format(DType::f32);
  sgd.rule = Rule::sgd;
  EXPECT_EQ(with_average(sgd).state_tile_bytes(), 4 * kTileElems);
  EXPECT_EQ(with_average(sgd).without_arrays().state_tile_bytes(), 0);
}

}  // namespace
}  // namespace spillway::optim::average_tile_test
