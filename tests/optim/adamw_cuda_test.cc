// Tests that AdamW and the gradient norm on a GPU give bitwise the results of the CPU, in every state format, in place and out of place,
// over parts of tiles (16,384 elements) that end anywhere.
#include <gtest/gtest.h>

#include "optim/adamw_gpu.h"
#include "tests/optim/support_tile.h"
#include "tests/support/gpu.h"

namespace spillway::optim::adamw_cuda_test {
namespace {

using test::AlignedBytes;
using test::Tile;
using test::Values;

constexpr i64 kTiles = 3;
constexpr RoundingNoise kNoise{{0x1234567887654321}, (u64{7} << 32) + 5, (u64{3} << 36) + 2 * kTileElems};

// Cuts all tiles into parts of `step` elements: in turn with weight decay, skipped by the update, and without weight decay.
struct Parts {
  explicit Parts(i64 step) {
    const Scalars<double>* all[] = {&decayed, nullptr, &plain};
    for (i64 end = step, n = 0; end < kTiles * kTileElems; end += step) parts.push_back({end, all[n++ % 3]});
    parts.push_back({kTiles * kTileElems, &decayed});
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
  Scalars<double> decayed = make_adamw_scalars<double>({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 3e-2, 0.1, 5, 0.7),
                  plain = make_adamw_scalars<double>({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 3e-2, 0, 5, 0.7);
  std::vector<TilePart> parts;
};

// Holds the bytes of all tiles on the GPU, one after the other. holds() compares them with expected bytes.
struct OnGpu {
  OnGpu(test::Gpu& gpu_, std::span<const AlignedBytes* const> tiles) : gpu(gpu_), tile_bytes(tiles[0]->size()) {
    std::vector<u8> all;
    for (const AlignedBytes* t : tiles)
      all.insert(all.end(), reinterpret_cast<u8*>(t->data()), reinterpret_cast<u8*>(t->data()) + t->size());
    bytes = gpu(tensor_of<u8>(all, {static_cast<i64>(all.size())}));
  }
  bool holds(i64 tile, const AlignedBytes& want) const {
    const Tensor host = gpu.host(bytes);
    return std::memcmp(host.data<u8>() + static_cast<size_t>(tile) * tile_bytes, want.data(), tile_bytes) == 0;
  }
  std::byte* data() const { return bytes.raw(); }
  test::Gpu& gpu;
  size_t tile_bytes;
  Tensor bytes;
};

class TilesOnGpu : public test::GpuTest, public testing::WithParamInterface<StateFormat> {
 protected:
  void expect_the_cpus(i64 step, bool in_place) {
    const StateFormat f = GetParam();
    const Parts parts(step);
    std::mt19937_64 random(51);
    std::vector<Tile> old;
    std::vector<AlignedBytes> gradients;
    for (i64 t = 0; t < kTiles; ++t)
      old.push_back(random_tile(f, Values::ordinary, random)), gradients.push_back(random_gradient(f, Values::ordinary, random));
    std::vector<const AlignedBytes*> w, s, g;
    for (i64 t = 0; t < kTiles; ++t) w.push_back(&old[t].weight), s.push_back(&old[t].state), g.push_back(&gradients[t]);
    const OnGpu weight(gpu(), w), state(gpu(), s), gradient(gpu(), g), other_weight(gpu(), w), other_state(gpu(), s);
    const OnGpu &new_weight = in_place ? weight : other_weight, &new_state = in_place ? state : other_state;
    gpu().run([&] {
      adamw_update_tiles_on_gpu(f, {gradient.data(), weight.data(), state.data(), new_weight.data(), new_state.data()}, kTiles, parts.parts,
                                kNoise);
    });
    for (i64 t = 0; t < kTiles; ++t) {
      Tile want(f);
      RoundingNoise noise = kNoise;
      noise.first_element += static_cast<u64>(t * kTileElems);
      adamw_update_tile(f, {gradients[t].data(), old[t].weight.data(), old[t].state.data(), want.weight.data(), want.state.data()},
                        parts.of_tile(t), noise);
      ASSERT_FALSE(same(f, want, old[t]));
      EXPECT_TRUE(new_weight.holds(t, want.weight)) << "tile " << t;
      EXPECT_TRUE(new_state.holds(t, want.state)) << "tile " << t;
    }
  }
};

TEST_P(TilesOnGpu, HaveTheBitsOfTheCpu) { expect_the_cpus(3001, false); }
TEST_P(TilesOnGpu, InPlace) { expect_the_cpus(kTiles * kTileElems, true); }
// Tiles of optimizer state (16,384 elements) are cut into more parts than fit into one kernel launch.
TEST_P(TilesOnGpu, OfManyParts) { expect_the_cpus(64, true); }

INSTANTIATE_TEST_SUITE_P(Formats, TilesOnGpu, testing::ValuesIn(test::all_formats()),
                         [](const auto& format) { return test::name(format.param); });

class NormOnGpu : public test::GpuTest {};

TEST_F(NormOnGpu, HasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    StateFormat f = plain_format(dtype == DType::bf16 ? DType::f32 : dtype);
    f.gradient = dtype;
    std::mt19937_64 random(7);
    std::vector<AlignedBytes> gradients;
    for (i64 t = 0; t < kTiles; ++t) gradients.push_back(random_gradient(f, Values::ordinary, random));
    const std::vector<const AlignedBytes*> g{&gradients[0], &gradients[1], &gradients[2]};
    const OnGpu gradient(gpu(), g);
    const Tensor sums = gpu().empty({kTiles}, DType::f64);
    gpu().run([&] { tile_square_sums_on_gpu(gradient.data(), dtype, kTiles, sums.data<double>()); });
    const Tensor got = gpu().host(sums);
    const auto want = [&]<class T>(const AlignedBytes& tile, T) {
      return tile_square_sum(std::span(reinterpret_cast<const T*>(tile.data()), kTileElems));
    };
    for (i64 t = 0; t < kTiles; ++t) {
      const AlignedBytes& tile = gradients[static_cast<size_t>(t)];
      const double expected = dtype == DType::f64   ? want(tile, double{})
                              : dtype == DType::f32 ? want(tile, float{})
                                                    : want(tile, BFloat16{});
      EXPECT_EQ(got.data<double>()[t], expected) << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace spillway::optim::adamw_cuda_test
