// Tests that every update rule on a GPU gives bitwise the results of the CPU: in every state format, in place and out of place, on parts of
// tensors with any begin and end, and with more tensors than one kernel launch takes settings for.
#include <gtest/gtest.h>

#include "optim/rules/gpu.h"
#include "optim/rules/tile.h"
#include "tests/optim/rules/support_rule_tile.h"
#include "tests/support/gpu.h"

namespace spillway::optim::tile_cuda_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

constexpr i64 kTiles = 2;
constexpr RoundingNoise kNoise{{0x1234567887654321}, (u64{7} << 32) + 5, (u64{3} << 36) + 2 * kTileElems};

// Cuts all tiles into parts of `step` elements, in turn skipped by the update and updated with one of `kinds` sets of scalars.
struct Parts {
  Parts(Rule rule, i64 step, size_t kinds) {
    for (size_t k = 0; k < kinds; ++k)
      scalars.push_back(make_scalars(test::settings_of(rule), 1e-2 * static_cast<double>(1 + k), k % 2 ? 0.1 : 0, 5, 0.7));
    size_t n = 0;
    for (i64 end = step; end < kTiles * kTileElems; end += step, ++n) parts.push_back({end, n % 3 == 1 ? nullptr : &scalars[n % kinds]});
    parts.push_back({kTiles * kTileElems, &scalars[0]});
  }
  // Returns the parts that overlap one tile. Their ends are relative to the tile's start.
  std::vector<TilePart> of_tile(i64 tile) const {
    std::vector<TilePart> some;
    const i64 begin = tile * kTileElems, end = begin + kTileElems;
    for (size_t p = 0; p < parts.size(); ++p) {
      const i64 from = p == 0 ? 0 : parts[p - 1].end;
      if (parts[p].end > begin && from < end) some.push_back({std::min(parts[p].end, end) - begin, parts[p].scalars});
    }
    return some;
  }
  std::vector<Scalars<double>> scalars;
  std::vector<TilePart> parts;
};

class RuleTilesOnGpu : public test::GpuTest, public testing::WithParamInterface<Rule> {
 protected:
  Tensor on_gpu(std::span<const AlignedBytes* const> tiles) {
    std::vector<u8> all;
    for (const AlignedBytes* t : tiles)
      all.insert(all.end(), reinterpret_cast<u8*>(t->data()), reinterpret_cast<u8*>(t->data()) + t->size());
    if (all.empty()) all.push_back(0);
    return gpu()(tensor_of<u8>(all, {static_cast<i64>(all.size())}));
  }
  void expect_bytes(const Tensor& got, i64 tile, const AlignedBytes& want) {
    const Tensor host = gpu().host(got);
    EXPECT_EQ(std::memcmp(host.data<u8>() + static_cast<size_t>(tile) * want.size(), want.data(), want.size()), 0) << "tile " << tile;
  }
  void expect_the_cpus(const StateFormat& f, i64 step, size_t kinds, bool in_place) {
    SCOPED_TRACE(test::name(f));
    const Parts parts(f.rule, step, kinds);
    std::mt19937_64 random(71);
    std::vector<Tile> old;
    std::vector<AlignedBytes> gradients;
    for (i64 t = 0; t < kTiles; ++t)
      old.push_back(test::random_rule_tile(f, random)), gradients.push_back(random_gradient(f, Values::ordinary, random));
    std::vector<const AlignedBytes*> w, s, g;
    for (size_t t = 0; t < kTiles; ++t) w.push_back(&old[t].weight), s.push_back(&old[t].state), g.push_back(&gradients[t]);
    const Tensor weight = on_gpu(w), state = on_gpu(s), gradient = on_gpu(g), other_weight = on_gpu(w), other_state = on_gpu(s);
    const Tensor &new_weight = in_place ? weight : other_weight, &new_state = in_place ? state : other_state;
    gpu().run([&] {
      update_tiles_on_gpu(f, {gradient.raw(), weight.raw(), state.raw(), new_weight.raw(), new_state.raw()}, kTiles, parts.parts, kNoise);
    });
    for (i64 t = 0; t < kTiles; ++t) {
      const Tile& before = old[static_cast<size_t>(t)];
      Tile want(f);
      RoundingNoise noise = kNoise;
      noise.first_element += static_cast<u64>(t * kTileElems);
      update_tile(
          f, {gradients[static_cast<size_t>(t)].data(), before.weight.data(), before.state.data(), want.weight.data(), want.state.data()},
          parts.of_tile(t), noise);
      ASSERT_FALSE(want == before);
      expect_bytes(new_weight, t, want.weight);
      expect_bytes(new_state, t, want.state);
    }
  }
};

TEST_P(RuleTilesOnGpu, HaveTheBitsOfTheCpu) {
  for (const StateFormat& f : test::formats_of(GetParam())) expect_the_cpus(f, 3001, 2, false);
}
// Tiles of optimizer state are cut into more parts, with more different scalars, than fit into one kernel launch.
TEST_P(RuleTilesOnGpu, OfManyPartsInPlace) {
  const std::vector<StateFormat> formats = test::formats_of(GetParam());
  for (const size_t some : {size_t{0}, formats.size() - 1}) expect_the_cpus(formats[some], 64, 40, true);
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleTilesOnGpu, testing::ValuesIn(test::kOtherRules),
                         [](const auto& rule) { return to_string(rule.param); });

}  // namespace
}  // namespace spillway::optim::tile_cuda_test
