#include "parallel/device/gradient_rounding.h"

#include <algorithm>
#include <cstring>

#include "device/stream.h"
#include "optim/bf16.h"
#include "optim/norm.h"

namespace spillway::parallel {
namespace {

double round_tile(const std::byte* from, DType into, std::byte* to) {
  alignas(64) BFloat16 rounded[optim::kTileElems];
  const float* x = reinterpret_cast<const float*>(from);
  for (i64 i = 0; i < optim::kTileElems; ++i) rounded[i].bits = optim::round_bf16_to_even(x[i]);
  if (into == DType::bf16) {
    std::memcpy(to, rounded, sizeof(rounded));
  } else {
    for (i64 i = 0; i < optim::kTileElems; ++i) reinterpret_cast<float*>(to)[i] = optim::widen_bf16(rounded[i].bits);
  }
  return optim::tile_square_sum(rounded);
}

}  // namespace

// If tiles are packed to bf16, tile t is written into a half of the memory of fp32 tile t / 2. So tiles [n, 2n) may be packed in parallel
// once the tiles before n are done.
void round_gradient(std::byte* base, DType into, std::span<double> square_sums) {
  const auto tiles = static_cast<i64>(square_sums.size());
  const i64 from_bytes = optim::kTileElems * size_of(DType::f32), to_bytes = optim::kTileElems * size_of(into);
  const auto round_range = [&](i64 begin, i64 end) {
    Stream::current().run(end - begin, [&](i64 i, int) {
      const i64 t = begin + i;
      square_sums[static_cast<size_t>(t)] = round_tile(base + t * from_bytes, into, base + t * to_bytes);
    });
  };
  if (into != DType::bf16) return round_range(0, tiles);
  for (i64 begin = 0, end = 1; begin < tiles; begin = end, end = std::min(2 * end, tiles)) round_range(begin, end);
}

}  // namespace spillway::parallel
