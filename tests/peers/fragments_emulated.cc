#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/mma_cuda.h"
#include "tests/peers/fragments.h"

namespace spillway::peers {
namespace {

namespace mma = kernels::mma;

template <class H>
void multiply_lane(const Operands* operands, Products* products) {
  const auto& mine = (*operands)[threadIdx.x];
  const u32 a[4] = {mine[0], mine[1], mine[2], mine[3]};
  float c[4] = {};
  mma::multiply_add<H>(c, a, mine[4], mine[5]);
  std::memcpy((*products)[threadIdx.x], c, sizeof c);
}

template <bool kTransposed>
void load_lane(const Rows* at, const unsigned char* shared, Loaded* loaded) {
  if (threadIdx.x == 0) std::memcpy(emulated_cuda::dynamic_shared(), shared, kSharedBytes);
  __syncthreads();
  u32 to[4];
  mma::load_matrices<kTransposed>((*at)[threadIdx.x], to);
  std::memcpy((*loaded)[threadIdx.x], to, sizeof to);
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1), config.blockDim = dim3(kLanes), config.dynamicSmemBytes = kSharedBytes;
  // When cudaLaunchKernelEx() returns, the emulator has finished the launch, since it has no stream.
  if (cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess) return;
  std::fprintf(stderr, "expected the emulator to run a warp, got an error: set SPILLWAY_EMULATED_GPUS=1\n");
  std::exit(2);
}

}  // namespace

void multiply(bool f16, const Operands& operands, Products& products) {
  run(f16 ? multiply_lane<Float16> : multiply_lane<BFloat16>, &operands, &products);
}

void load(bool transposed, const Rows& at, const unsigned char (&shared)[kSharedBytes], Loaded& loaded) {
  run(transposed ? load_lane<true> : load_lane<false>, &at, shared, &loaded);
}

}  // namespace spillway::peers
