#include <bit>

#include "device/launch_cuda.h"
#include "optim/bf16.h"
#include "optim/state_format.h"
#include "parallel/device/gradient_rounding.h"

namespace spillway::parallel {
namespace {

using optim::kTileElems;

constexpr i64 kEach = 4;  // elements that a thread handles at once: 16 bytes of fp32
static_assert(kTileElems % (kBlockThreads * kEach) == 0);

__global__ void round_in_place(float4* packs, i64 count) {
  const auto rounded = [](float x) { return optim::widen_bf16(optim::round_bf16_to_even(x)); };
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < count; p += i64{gridDim.x} * blockDim.x) {
    const float4 x = packs[p];
    packs[p] = {rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w)};
  }
}

// Uses one thread block per tile. Each tile is packed from fp32 into one half of an earlier tile's memory; tile 0 is packed into the first
// half of it. The block synchronizes between reading and writing, so it overwrites only what it or an earlier launch has read.
__global__ void __launch_bounds__(kBlockThreads) round_packed(std::byte* base, i64 first_tile) {
  const i64 tile = first_tile + blockIdx.x;
  const auto* from = reinterpret_cast<const float4*>(base) + tile * (kTileElems / kEach);
  u64* to = reinterpret_cast<u64*>(base) + tile * (kTileElems / kEach);
  const auto rounded = [](float x) { return u64{optim::round_bf16_to_even(x)}; };
  for (i64 p = threadIdx.x; p < kTileElems / kEach; p += kBlockThreads) {
    const float4 x = from[p];
    __syncthreads();
    to[p] = rounded(x.x) | rounded(x.y) << 16 | rounded(x.z) << 32 | rounded(x.w) << 48;
  }
}

}  // namespace

// Packed to bf16, tile t is written into a half of the memory of fp32 tile t / 2. So tiles [n, 2n) may be packed in parallel once the
// tiles before n are done.
void round_gradient_on_gpu(std::byte* base, DType into, i64 tiles) {
  const i64 packs = tiles * kTileElems / kEach;
  if (into != DType::bf16 && tiles > 0)
    return launch("round_in_place", round_in_place, blocks_for(packs), dim3(kBlockThreads), reinterpret_cast<float4*>(base), packs);
  for (i64 begin = 0, end = 1; begin < tiles; begin = end, end = std::min(2 * end, tiles))
    launch("round_packed", round_packed, dim3(static_cast<unsigned>(end - begin)), dim3(kBlockThreads), base, begin);
}

}  // namespace spillway::parallel
