// Tests AdamW's update of one tile in every state format: instruction sets against each other, in
// place against out of place and streaming stores, tiles cut into parts, and against adamw_update.
#include "optim/adamw_tile.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/optim/support_tile.h"

namespace spillway::optim::adamw_tile_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

constexpr RoundingNoise kNoise{{0x1234567887654321}, (u64{7} << 32) + 5, (u64{3} << 36) + 2 * kTileElems};

Scalars<double> scalars(double weight_decay = 0.1, double gradient_scale = 0.7, double eps = 1e-8) {
  return make_adamw_scalars<double>({.beta1 = 0.9, .beta2 = 0.95, .eps = eps}, 3e-2, weight_decay, 5, gradient_scale);
}

// Cuts a tile into five parts: three that are updated, one of them without weight decay, an empty part and a gap.
// None ends at the end of a row or block: parts end within a row, or span rows and blocks, or reach the tile's end.
struct ThreeParts {
  Scalars<double> decayed = scalars(), plain = scalars(0);
  std::vector<TilePart> parts{{77, &decayed}, {77, nullptr}, {3001, &plain}, {3008, nullptr}, {kTileElems, &decayed}};
};

Tile updated(const StateFormat& f, const Tile& old, const AlignedBytes& gradient, std::span<const TilePart> parts, Isa isa,
             bool streaming) {
  Tile next(f);
  adamw_update_tile(f, {gradient.data(), old.weight.data(), old.state.data(), next.weight.data(), next.state.data()}, parts, kNoise, isa,
                    streaming);
  EXPECT_TRUE(next.weight.guard_holds() && next.state.guard_holds());
  return next;
}

class TileFormat : public testing::TestWithParam<StateFormat> {};

TEST_P(TileFormat, EveryPathGivesTheSameBits) {
  const StateFormat f = GetParam();
  const ThreeParts three;
  std::mt19937_64 random(51);
  for (Values kind : test::kAllValues) {
    const Tile old = random_tile(f, kind, random);
    const AlignedBytes gradient = random_gradient(f, kind, random);
    const Tile expected = updated(f, old, gradient, three.parts, Isa::scalar, false);
    EXPECT_FALSE(same(f, expected, old));
    for (Isa isa : available_isas()) {
      for (bool streaming : {false, true}) {
        EXPECT_TRUE(same(f, updated(f, old, gradient, three.parts, isa, streaming), expected))
            << static_cast<int>(kind) << ' ' << to_string(isa) << (streaming ? " streamed" : "");
      }
    }
  }
}

TEST_P(TileFormat, ManyStepsInPlaceAreManyStepsOutOfPlace) {
  const StateFormat f = GetParam();
  const ThreeParts three;
  std::mt19937_64 random(52);
  Tile in_place = random_tile(f, Values::ordinary, random), out_of_place = in_place, slow = in_place;
  for (int step = 0; step < 5; ++step) {
    const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
    const auto in_place_by = [&](const Tile& tile, Isa isa) {
      adamw_update_tile(f, {gradient.data(), tile.weight.data(), tile.state.data(), tile.weight.data(), tile.state.data()}, three.parts,
                        kNoise, isa);
    };
    in_place_by(in_place, Isa::best);
    in_place_by(slow, Isa::scalar);
    out_of_place = updated(f, out_of_place, gradient, three.parts, Isa::best, step % 2 == 0);
  }
  EXPECT_TRUE(in_place == out_of_place);
  EXPECT_TRUE(same(f, in_place, slow));
}

// Shows that the update of one part of a tile leaves the weights of other parts alone. Only weights are compared: with 8-bit moments,
// elements of a quantization block share a scale, but weights are updated before the moments are encoded.
TEST_P(TileFormat, PartsDoNotChangeEachOther) {
  const StateFormat f = GetParam();
  const ThreeParts three;
  std::mt19937_64 random(53);
  const Tile old = random_tile(f, Values::ordinary, random);
  const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
  const Tile mixed = updated(f, old, gradient, three.parts, Isa::best, false);
  const TilePart all_decayed{kTileElems, &three.decayed}, all_plain{kTileElems, &three.plain};
  const Tile decayed = updated(f, old, gradient, {&all_decayed, 1}, Isa::best, false);
  const Tile plain = updated(f, old, gradient, {&all_plain, 1}, Isa::best, false);
  const i64 bytes = size_of(f.weight);
  for (i64 i = 0; i < kTileElems; ++i) {
    if (i >= 3001 && i < 3008) continue;
    const Tile& expected = i >= 77 && i < 3001 ? plain : decayed;
    ASSERT_EQ(std::memcmp(mixed.weight.data() + i * bytes, expected.weight.data() + i * bytes, static_cast<size_t>(bytes)), 0) << i;
  }
}

TEST_P(TileFormat, GapsStayZero) {
  const StateFormat f = GetParam();
  const Scalars<double> without_eps = scalars(0.1, 0.7, 0);
  const TilePart gap{kTileElems, nullptr}, used{kTileElems, &without_eps};
  const std::vector<double> zeros(kTileElems);
  Tile old(f);
  write_tile<double>(f, {zeros, {}, {}}, old.weight.data(), old.state.data());
  const AlignedBytes gradient(f.gradient_tile_bytes());
  std::memset(gradient.data(), 0, gradient.size());
  EXPECT_TRUE(updated(f, old, gradient, {&gap, 1}, Isa::best, true) == old);
  // eps is 0, so updating an element of this tile would divide 0 by 0
  EXPECT_FALSE(updated(f, old, gradient, {&used, 1}, Isa::best, true) == old);
}

TEST_P(TileFormat, NanIsNeverHidden) {
  const StateFormat f = GetParam();
  const Scalars<double> s = scalars();
  const TilePart whole{kTileElems, &s};
  std::mt19937_64 random(54);
  const Tile old = random_tile(f, Values::ordinary, random);
  for (Isa isa : available_isas()) {
    const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
    // Element 700 of the gradient becomes a NaN with all bits set.
    std::memset(gradient.data() + 700 * size_of(f.gradient), 0xff, static_cast<size_t>(size_of(f.gradient)));
    const Tile next = updated(f, old, gradient, {&whole, 1}, isa, false);
    for (StatePart part : {StatePart::master, StatePart::first, StatePart::second}) {
      std::vector<double> values(kTileElems);
      read_part<double>(f, part, next.weight.data(), next.state.data(), 0, values);
      EXPECT_TRUE(std::isnan(values[700]));
      EXPECT_TRUE(std::isfinite(values[0]) && std::isfinite(values[kTileElems - 1]));
    }
    if (is_half(f.weight)) {
      u16 bits;
      std::memcpy(&bits, next.weight.data() + 700 * sizeof(bits), sizeof(bits));
      EXPECT_EQ(bits, f.weight == DType::bf16 ? 0x7fc0 : 0x7e00);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TileFormat, testing::ValuesIn(test::all_formats()),
                         [](const auto& format) { return test::name(format.param); });

// Masters beyond the range of f16 give infinite weights, and those below its denormals give zero. The master keeps its value.
TEST(F16Weight, IsItsMasterRoundedToEven) {
  const StateFormat f = plain_format(DType::f16);
  std::vector<double> master(kTileElems, 0);
  // the loop makes master weights halfway between an even f16 number and the next one, of both signs
  for (u32 bits = 0; bits < 0x7c00; bits += 2) {
    const double below = widen(Float16{static_cast<u16>(bits)}),
                 next = bits + 1 == 0x7c00 ? 65536 : widen(Float16{static_cast<u16>(bits + 1)});
    master[bits / 2] = (below + next) / 2 * (bits % 4 == 0 ? 1 : -1);
  }
  master[kTileElems - 4] = 65504, master[kTileElems - 3] = 65520, master[kTileElems - 2] = -1e30, master[kTileElems - 1] = 0x1p-25;
  for (const Isa isa : available_isas()) {
    Tile tile(f);
    write_tile<double>(f, {master, {}, {}}, tile.weight.data(), tile.state.data());
    const AlignedBytes gradient(f.gradient_tile_bytes());
    std::memset(gradient.data(), 0, gradient.size());
    // The gradient and the weight decay are zero, so the update does not change the master weights.
    const auto s = make_adamw_scalars<double>({}, 0, 0, 1, 1);
    const TilePart whole{kTileElems, &s};
    Tile next(f);
    adamw_update_tile(f, {gradient.data(), tile.weight.data(), tile.state.data(), next.weight.data(), next.state.data()}, {&whole, 1}, {},
                      isa);
    EXPECT_EQ(next.weight, tile.weight);
    const auto* weight = reinterpret_cast<const Float16*>(next.weight.data());
    for (i64 i = 0; i < kTileElems; ++i) {
      const auto want = static_cast<_Float16>(static_cast<float>(master[static_cast<size_t>(i)]));
      ASSERT_EQ(weight[i].bits, std::bit_cast<u16>(want)) << i;
    }
    EXPECT_EQ(test::read(f, StatePart::master, next)[kTileElems - 2], -1e30f);
  }
}

template <class T>
void equals_update_of_spans() {
  const StateFormat f = plain_format(DTypeOf<T>::value);
  std::mt19937_64 random(55);
  const Tile old = random_tile(f, Values::ordinary, random);
  const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
  const Scalars<double> s = scalars();
  const TilePart whole{kTileElems, &s};
  const Tile next = updated(f, old, gradient, {&whole, 1}, Isa::best, true);
  const Tile expected = old;
  const auto column = [](std::byte* at) { return std::span(reinterpret_cast<T*>(at), kTileElems); };
  adamw_update<T>(column(expected.weight.data()), column(expected.state.data()), column(expected.state.data() + f.v_begin_bytes()),
                  column(gradient.data()), make_adamw_scalars<T>({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 3e-2, 0.1, 5, 0.7));
  EXPECT_TRUE(next == expected);
}

TEST(AdamWTile, PlainFormatsAreAdamWOnSpans) {
  equals_update_of_spans<float>();
  equals_update_of_spans<double>();
}

// A split master (bf16 weight and 16-bit remainder) gives the same weights, masters and moments as a plain fp32 master.
TEST(AdamWTile, SplitMasterIsThePlainMaster) {
  const ThreeParts three;
  for (Moments moments : {Moments::fp32, Moments::bf16, Moments::int8}) {
    const StateFormat plain{DType::bf16, Master::fp32, moments}, split{DType::bf16, Master::split, moments};
    for (Values kind : {Values::ordinary, Values::tiny, Values::huge}) {
      std::mt19937_64 random(56), again(56);
      Tile a = random_tile(plain, kind, random), b = random_tile(split, kind, again);
      for (int step = 0; step < 10; ++step) {
        const AlignedBytes gradient = random_gradient(plain, kind, random);
        a = updated(plain, a, gradient, three.parts, Isa::best, false);
        b = updated(split, b, gradient, three.parts, Isa::best, false);
      }
      EXPECT_TRUE(a.weight == b.weight);
      for (StatePart part : {StatePart::master, StatePart::first, StatePart::second}) {
        EXPECT_TRUE(test::same(test::read(plain, part, a), test::read(split, part, b))) << static_cast<int>(kind);
      }
    }
  }
}

TEST(AdamWTile, RefusesWhatDoesNotFit) {
  const StateFormat f = plain_format(DType::f32);
  std::mt19937_64 random(57);
  const Tile tile = random_tile(f, Values::ordinary, random);
  const AlignedBytes gradient = random_gradient(f, Values::ordinary, random);
  const Scalars<double> s = scalars();
  TileOperands operands{gradient.data(), tile.weight.data(), tile.state.data(), tile.weight.data(), tile.state.data()};
  const auto refused = [&](std::vector<TilePart> parts, const RoundingNoise& noise = {}, bool streaming = false, StateFormat format = {}) {
    EXPECT_THROW(adamw_update_tile(format, operands, parts, noise, Isa::best, streaming), Error);
  };
  refused({});
  refused({{kTileElems - 1, &s}});
  refused({{kTileElems + 1, &s}});
  refused({{100, &s}, {99, &s}, {kTileElems, &s}});
  refused({{-1, &s}, {kTileElems, &s}});
  refused({{kTileElems, &s}}, {.first_element = 32});
  refused({{kTileElems, &s}}, {}, false, {.weight = DType::int32});
  operands.new_weight += 4;
  refused({{kTileElems, &s}}, {}, true);
}

}  // namespace
}  // namespace spillway::optim::adamw_tile_test
