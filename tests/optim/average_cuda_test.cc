// Tests that the moving average of the weights on a GPU equals the CPU's to the bit, in every state format, in place and out of place.
#include <gtest/gtest.h>

#include "optim/average_tile.h"
#include "tests/optim/support_tile.h"
#include "tests/support/gpu.h"

namespace spillway::optim::average_cuda_test {
namespace {

using test::AlignedBytes;
using test::Tile;

constexpr i64 kTiles = 3;
constexpr double kDecay = 0.999;

class AveragesOnGpu : public test::GpuTest, public testing::WithParamInterface<StateFormat> {
 protected:
  Tensor there(const std::vector<Tile>& tiles, AlignedBytes Tile::*bytes) {
    std::vector<u8> all;
    for (const Tile& t : tiles) {
      const auto* from = reinterpret_cast<const u8*>((t.*bytes).data());
      all.insert(all.end(), from, from + (t.*bytes).size());
    }
    return gpu()(tensor_of<u8>(all, {static_cast<i64>(all.size())}));
  }
};

TEST_P(AveragesOnGpu, AreTheCpus) {
  StateFormat f = GetParam();
  f.average = true;
  std::mt19937_64 random(5);
  std::vector<Tile> old, next;
  for (i64 t = 0; t < kTiles; ++t) old.push_back(test::averaged_tile(f, random)), next.push_back(test::averaged_tile(f, random));
  const Tensor weights = there(next, &Tile::weight), before = there(old, &Tile::state), after = there(next, &Tile::state);
  gpu().run([&] { average_tiles_on_gpu(f, {weights.raw(), after.raw(), before.raw(), after.raw()}, kTiles, kDecay); });
  const Tensor got = gpu().host(after);
  for (i64 t = 0; t < kTiles; ++t) {
    Tile want = next[static_cast<size_t>(t)];
    average_tile(f, {want.weight.data(), want.state.data(), old[static_cast<size_t>(t)].state.data(), want.state.data()}, kDecay);
    EXPECT_EQ(std::memcmp(got.data<u8>() + t * f.state_tile_bytes(), want.state.data(), want.state.size()), 0) << t;
  }
}

std::string format_name(const testing::TestParamInfo<StateFormat>& info) { return test::name(info.param); }
INSTANTIATE_TEST_SUITE_P(Formats, AveragesOnGpu, testing::ValuesIn(test::all_formats()), format_name);

}  // namespace
}  // namespace spillway::optim::average_cuda_test
