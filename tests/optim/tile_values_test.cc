// Tests that numbers written into a tile can be read back, in every state format.
#include "optim/tile_values.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/optim/support_tile.h"

namespace spillway::optim::tile_values_test {
namespace {

using test::Tile;
using test::Values;

constexpr StatePart kParts[] = {StatePart::master, StatePart::first, StatePart::second};

class TileValuesOf : public testing::TestWithParam<StateFormat> {};

/// Returns a tile as training leaves it: random values after some updates.
Tile trained(const StateFormat& f, Values kind, std::mt19937_64& random) {
  Tile tile = random_tile(f, kind, random);
  const auto s = make_adamw_scalars<double>({}, 1e-3, 0.1, 3, 1);
  const TilePart whole{kTileElems, &s};
  for (u64 t = 0; t < 3; ++t) {
    const auto gradient = random_gradient(f, kind, random);
    adamw_update_tile(f, {gradient.data(), tile.weight.data(), tile.state.data(), tile.weight.data(), tile.state.data()}, {&whole, 1},
                      {{1}, t, 0});
  }
  return tile;
}

template <class T>
Tile rewritten(const StateFormat& f, const Tile& tile) {
  std::vector<T> values[3];
  for (int part = 0; part < 3; ++part) {
    values[part].resize(kTileElems);
    read_part<T>(f, kParts[part], tile.weight.data(), tile.state.data(), 0, values[part]);
  }
  Tile again(f);
  write_tile<T>(f, {values[0], values[1], values[2]}, again.weight.data(), again.state.data());
  EXPECT_TRUE(again.weight.guard_holds() && again.state.guard_holds());
  return again;
}

TEST_P(TileValuesOf, WhatIsReadAndWrittenAgainIsTheSameBytes) {
  const StateFormat f = GetParam();
  std::mt19937_64 random(81);
  for (Values kind : {Values::ordinary, Values::tiny, Values::huge, Values::any}) {
    const Tile tile = trained(f, kind, random);
    EXPECT_TRUE(same(f, rewritten<double>(f, tile), tile)) << static_cast<int>(kind);
    if (f.weight == DType::f64) continue;
    EXPECT_TRUE(same(f, rewritten<float>(f, tile), tile)) << static_cast<int>(kind);
  }
}

// In formats whose update need not read the weight, the weight must follow from the master alone.
TEST_P(TileValuesOf, AWholeMasterGivesTheWeight) {
  const StateFormat f = GetParam();
  EXPECT_EQ(f.update_reads_weight(), f.m_begin_bytes() < 4 * kTileElems);
  std::mt19937_64 random(83);
  for (Values kind : {Values::ordinary, Values::tiny, Values::huge, Values::any}) {
    const Tile tile = trained(f, kind, random);
    Tile again = tile;
    if (f.update_reads_weight()) {
      EXPECT_THROW(weights_of_master(f, again.state.data(), again.weight.data()), Error);
      continue;
    }
    std::fill_n(again.weight.data(), f.weight_tile_bytes(), std::byte{0x5a});
    weights_of_master(f, again.state.data(), again.weight.data());
    EXPECT_TRUE(same(f, again, tile)) << static_cast<int>(kind);
  }
}

TEST_P(TileValuesOf, WithoutMomentsTheyAreZero) {
  const StateFormat f = GetParam();
  std::mt19937_64 random(82);
  const auto master = test::draw<double>(kTileElems, Values::ordinary, random);
  Tile tile(f);
  write_tile<double>(f, {master, {}, {}}, tile.weight.data(), tile.state.data());
  std::vector<double> values(kTileElems);
  read_part<double>(f, StatePart::master, tile.weight.data(), tile.state.data(), 0, values);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], f.weight == DType::f64 ? master[i] : static_cast<double>(static_cast<float>(master[i])));
  }
  for (StatePart part : {StatePart::first, StatePart::second}) {
    read_part<double>(f, part, tile.weight.data(), tile.state.data(), 0, values);
    EXPECT_EQ(std::count(values.begin(), values.end(), 0.0), kTileElems);
  }
}

TEST_P(TileValuesOf, APieceIsAPieceOfTheWhole) {
  const StateFormat f = GetParam();
  std::mt19937_64 random(83);
  const Tile tile = trained(f, Values::ordinary, random);
  for (StatePart part : kParts) {
    std::vector<double> whole(kTileElems), piece(700);
    read_part<double>(f, part, tile.weight.data(), tile.state.data(), 0, whole);
    read_part<double>(f, part, tile.weight.data(), tile.state.data(), 1111, piece);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + 1111));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TileValuesOf, testing::ValuesIn(test::all_formats()),
                         [](const auto& format) { return test::name(format.param); });

// Values written in a coarser format are rounded to nearest: the error is at most half a spacing. With 8 bits a
// spacing is at most that of a decade divided into 64 (m) or 128 (v) codes, relative to the block's largest value.
TEST(TileValues, AnotherFormatRoundsToNearest) {
  std::mt19937_64 random(84);
  const auto x = test::draw<float>(kTileElems, Values::ordinary, random);
  std::vector<float> v(x);
  for (float& y : v) y *= y;
  for (Moments moments : {Moments::bf16, Moments::int8}) {
    const StateFormat f{DType::bf16, Master::split, moments};
    Tile tile(f);
    write_tile<float>(f, {x, x, v}, tile.weight.data(), tile.state.data());
    EXPECT_TRUE(test::same(test::read(f, StatePart::master, tile), x));
    const auto m_read = test::read(f, StatePart::first, tile), v_read = test::read(f, StatePart::second, tile);
    for (size_t i = 0; i < x.size(); ++i) {
      float m_scale = 0, v_scale = 0;
      for (size_t k = i / 256 * 256; k < i / 256 * 256 + 256; ++k)
        m_scale = std::max(m_scale, std::abs(x[k])), v_scale = std::max(v_scale, v[k]);
      const bool bf16 = moments == Moments::bf16;
      ASSERT_NEAR(m_read[i], x[i], bf16 ? std::abs(x[i]) * 0x1p-8 : 0.9 / 64 / 2 * m_scale * 1.0001);
      ASSERT_NEAR(v_read[i], v[i], bf16 ? v[i] * 0x1p-8 : 0.9 / 128 / 2 * v_scale * 1.0001);
    }
  }
}

TEST(TileValues, RefusesWhatDoesNotFit) {
  const StateFormat f = plain_format(DType::f32), wide = plain_format(DType::f64);
  Tile tile(f), wide_tile(wide);
  std::vector<float> values(kTileElems + 1);
  const std::span<float> all(values);
  EXPECT_THROW(read_part(f, StatePart::first, tile.weight.data(), tile.state.data(), 0, all), Error);
  EXPECT_THROW(read_part(f, StatePart::first, tile.weight.data(), tile.state.data(), -1, all.first(1)), Error);
  EXPECT_THROW(read_part(wide, StatePart::first, wide_tile.weight.data(), wide_tile.state.data(), 0, all.first(1)), Error);
  EXPECT_THROW(write_tile<float>(f, {all, {}, {}}, tile.weight.data(), tile.state.data()), Error);
  EXPECT_THROW(write_tile<float>(f, {all.first(kTileElems), all.first(5), {}}, tile.weight.data(), tile.state.data()), Error);
}

}  // namespace
}  // namespace spillway::optim::tile_values_test
