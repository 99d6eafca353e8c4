// Tests every update rule on a tile in every state format: against `update` on widened numbers with the roundings of
// bf16.h written out, instruction sets against each other, in place against out of place, and tiles cut into parts.
#include "optim/rules/tile.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "optim/bf16.h"
#include "optim/rules/rules.h"
#include "tests/optim/rules/support_rule_tile.h"

namespace spillway::optim::tile_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

constexpr RoundingNoise kNoise{{0x1234567887654321}, (u64{7} << 32) + 5, (u64{3} << 36) + 2 * kTileElems};

Scalars<double> scalars(Rule rule, double weight_decay = 0.1) { return make_scalars(test::settings_of(rule), 3e-2, weight_decay, 5, 0.7); }

// Cuts a tile into five parts: three that are updated, one of them without weight decay, an empty part and a gap.
// None ends at the end of a row or block: parts end within a row, or span rows and blocks, or reach the tile's end.
struct ThreeParts {
  explicit ThreeParts(Rule rule) : decayed(scalars(rule)), plain(scalars(rule, 0)) {}
  Scalars<double> decayed, plain;
  std::vector<TilePart> parts{{77, &decayed}, {77, nullptr}, {3001, &plain}, {3008, nullptr}, {kTileElems, &decayed}};
};

Tile updated(const StateFormat& f, const Tile& old, const AlignedBytes& gradient, std::span<const TilePart> parts, Isa isa) {
  Tile next(f);
  update_tile(f, {gradient.data(), old.weight.data(), old.state.data(), next.weight.data(), next.state.data()}, parts, kNoise, isa, true);
  EXPECT_TRUE(next.weight.guard_holds() && next.state.guard_holds());
  return next;
}

std::vector<double> values_of(const StateFormat& f, StatePart part, const Tile& tile) {
  std::vector<double> values(kTileElems);
  read_part<double>(f, part, tile.weight.data(), tile.state.data(), 0, values);
  return values;
}

double gradient_at(const StateFormat& f, const AlignedBytes& bytes, i64 i) {
  const auto load = [&]<class T>(T x) {
    std::memcpy(&x, bytes.data() + i * static_cast<i64>(sizeof(T)), sizeof(T));
    return x;
  };
  if (f.gradient == DType::f64) return load(double{});
  return f.gradient == DType::bf16 ? static_cast<double>(widen_bf16(load(u16{}))) : static_cast<double>(load(float{}));
}

// Returns the updated arrays (master and state) before they are rounded to the format, computed by `update` on numbers of type T.
template <class T>
std::vector<std::vector<double>> unrounded(const StateFormat& f, const Tile& old, const AlignedBytes& gradient, const ThreeParts& three) {
  std::vector<std::vector<T>> arrays;
  for (int k = 0; k <= state_arrays(f.rule); ++k) {
    const std::vector<double> values = values_of(f, static_cast<StatePart>(k), old);
    arrays.emplace_back(values.begin(), values.end());
  }
  std::vector<T> g;
  for (i64 i = 0; i < kTileElems; ++i) g.push_back(static_cast<T>(gradient_at(f, gradient, i)));
  i64 begin = 0;
  for (const TilePart& part : three.parts) {
    const auto piece = [&](std::vector<T>& all) {
      return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(part.end - begin));
    };
    std::vector<std::span<T>> states;
    for (size_t k = 1; k < arrays.size(); ++k) states.push_back(piece(arrays[k]));
    if (part.scalars) update<T>(f.rule, piece(arrays[0]), states, piece(g), *part.scalars, Isa::scalar);
    begin = part.end;
  }
  std::vector<std::vector<double>> wide;
  for (const auto& array : arrays) wide.emplace_back(array.begin(), array.end());
  return wide;
}

// Returns the rounding noise of element i, computed from its own counter as adamw_tile.h describes.
u16 noise_at(int array, i64 i) {
  const u64 e = kNoise.first_element + static_cast<u64>(i), counter = 16 * (e / 64) + e % 16 + (array == 2 ? u64{1} << 63 : 0);
  const u32 word = philox(kNoise.key, kNoise.t, counter)[e / 16 % 4];
  return static_cast<u16>(array == 1 ? word >> 16 : word);
}

class RuleTile : public testing::TestWithParam<Rule> {};

TEST_P(RuleTile, IsUpdateOnWidenedNumbersThenRounded) {
  for (const StateFormat& f : test::formats_of(GetParam())) {
    SCOPED_TRACE(test::name(f));
    const ThreeParts three(f.rule);
    std::mt19937_64 random(61);
    const Tile old = test::random_rule_tile(f, random);
    const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
    const Tile next = updated(f, old, gradient, three.parts, Isa::best);
    const auto want = f.weight == DType::f64 ? unrounded<double>(f, old, gradient, three) : unrounded<float>(f, old, gradient, three);
    EXPECT_EQ(values_of(f, StatePart::master, next), want[0]);
    for (int k = 0; k < state_arrays(f.rule); ++k) {
      std::vector<double> rounded = want[static_cast<size_t>(1 + k)];
      for (i64 i = 0; f.moments == Moments::bf16 && i < kTileElems; ++i) {
        double& x = rounded[static_cast<size_t>(i)];
        x = widen_bf16(round_moment_bf16(static_cast<float>(x), noise_at(k, i)));
      }
      EXPECT_EQ(values_of(f, array_part(k), next), rounded) << k;
    }
    if (!is_half(f.weight)) continue;
    Tile weights(f);
    const auto master = values_of(f, StatePart::master, next);
    write_tile<double>(f, {master, {}, {}}, weights.weight.data(), weights.state.data());
    EXPECT_TRUE(weights.weight == next.weight);
  }
}

TEST_P(RuleTile, EveryPathGivesTheSameBits) {
  for (const StateFormat& f : test::formats_of(GetParam())) {
    SCOPED_TRACE(test::name(f));
    const ThreeParts three(f.rule);
    std::mt19937_64 random(62);
    const Tile old = test::random_rule_tile(f, random);
    const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
    const Tile expected = updated(f, old, gradient, three.parts, Isa::scalar);
    EXPECT_FALSE(expected == old);
    for (Isa isa : available_isas()) EXPECT_TRUE(updated(f, old, gradient, three.parts, isa) == expected) << to_string(isa);
  }
}

TEST_P(RuleTile, ManyStepsInPlaceAreManyStepsOutOfPlace) {
  for (const StateFormat& f : test::formats_of(GetParam())) {
    SCOPED_TRACE(test::name(f));
    const ThreeParts three(f.rule);
    std::mt19937_64 random(63);
    Tile in_place = test::random_rule_tile(f, random), out_of_place = in_place;
    for (int step = 0; step < 3; ++step) {
      const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
      update_tile(f, {gradient.data(), in_place.weight.data(), in_place.state.data(), in_place.weight.data(), in_place.state.data()},
                  three.parts, kNoise);
      out_of_place = updated(f, out_of_place, gradient, three.parts, Isa::best);
    }
    EXPECT_TRUE(in_place == out_of_place);
  }
}

TEST_P(RuleTile, GapsStayZero) {
  for (const StateFormat& f : test::formats_of(GetParam())) {
    SCOPED_TRACE(test::name(f));
    const TilePart gap{kTileElems, nullptr};
    const std::vector<double> zeros(kTileElems);
    Tile old(f);
    write_tile<double>(f, {zeros, {}, {}}, old.weight.data(), old.state.data());
    const AlignedBytes gradient(f.gradient_tile_bytes());
    std::memset(gradient.data(), 0, gradient.size());
    EXPECT_TRUE(updated(f, old, gradient, {&gap, 1}, Isa::best) == old);
  }
}

TEST_P(RuleTile, NumbersGoInAndOut) {
  for (const StateFormat& f : test::formats_of(GetParam())) {
    SCOPED_TRACE(test::name(f));
    std::mt19937_64 random(64);
    const Tile tile = test::random_rule_tile(f, random);
    std::vector<std::vector<double>> values(4);
    for (int k = 0; k <= state_arrays(f.rule); ++k) values[static_cast<size_t>(k)] = values_of(f, static_cast<StatePart>(k), tile);
    Tile again(f);
    write_tile<double>(f, {values[0], values[1], values[2], values[3]}, again.weight.data(), again.state.data());
    EXPECT_TRUE(again == tile);
    if (state_arrays(f.rule) == kMaxStateArrays) continue;
    EXPECT_THROW(values_of(f, array_part(state_arrays(f.rule)), tile), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleTile, testing::ValuesIn(test::kOtherRules), [](const auto& rule) { return to_string(rule.param); });

TEST(RuleTileAdamW, IsAdamWsOwn) {
  const StateFormat f = plain_format(DType::bf16);
  const ThreeParts three(Rule::adamw);
  std::mt19937_64 random(65);
  const Tile old = random_tile(f, Values::ordinary, random);
  const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
  Tile want(f);
  adamw_update_tile(f, {gradient.data(), old.weight.data(), old.state.data(), want.weight.data(), want.state.data()}, three.parts, kNoise);
  EXPECT_TRUE(updated(f, old, gradient, three.parts, Isa::best) == want);
}

TEST(RuleTileFormat, EightBitMomentsAreAdamWsAlone) {
  for (const Rule rule : test::kOtherRules) {
    StateFormat f{.moments = Moments::int8};
    f.check();
    f.rule = rule;
    try {
      f.check();
      ADD_FAILURE() << to_string(rule);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(std::string("got ") + to_string(rule)), std::string::npos) << error.what();
    }
  }
}

// Checks the layout of a parameter's state: beside an fp32 weight, and beside a bf16 weight, whose state includes a master.
TEST(RuleTileFormat, StateIsAMasterAndTheRulesArrays) {
  for (const Rule rule : test::kOtherRules) {
    StateFormat f = plain_format(DType::f32);
    f.rule = rule;
    EXPECT_EQ(f.state_tile_bytes(), state_arrays(rule) * 4 * kTileElems);
    f.weight = DType::bf16;
    EXPECT_EQ(f.state_tile_bytes(), (4 + state_arrays(rule) * 4) * kTileElems);
    f.master = Master::split, f.moments = Moments::bf16;
    EXPECT_EQ(f.state_tile_bytes(), (2 + state_arrays(rule) * 2) * kTileElems);
    EXPECT_EQ(static_cast<int>(state_array_names(rule).size()), state_arrays(rule));
  }
}

}  // namespace
}  // namespace spillway::optim::tile_test
