// Provides the CUDA language on the CPU: what the source of a kernel needs besides the runtime. A block's
// threads are fibers of one CPU thread; a fiber runs until it waits for others. Blocks run one after the other.
// __shared__ variables are static to that CPU thread. Source: Programming Guide 13.0, "C++ Language Extensions".
#pragma once
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace emulated_cuda {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);
/// Returns the block's dynamic shared memory of dynamicSmemBytes. The memory is NaN until it is written.
std::byte* dynamic_shared();
void wait_for_block();
void wait_for_warp();
/// Returns in `theirs` what lane `source` of the calling thread's warp passes as `mine`.
/// Lanes that have ended pass nothing. All other lanes of the warp must call exchange() too.
void exchange(const void* mine, void* theirs, size_t bytes, int source);
int lane();
unsigned ballot(bool mine);
/// Ends the process unless the mask names the caller and all other lanes of the caller's warp that have not ended.
void check_mask(unsigned mask);

// The functions below are instructions of the PTX ISA 9.0. Addresses in shared memory are offsets from dynamic_shared().
/// Executes mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, or its f16 form: c += a b, truncated toward zero.
void mma_m16n8k16(bool f16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
/// Executes ldmatrix.sync.aligned.m8n8.x4(.trans).shared.b16.
void ldmatrix_x4(unsigned at, bool transposed, unsigned (&to)[4]);
/// Executes cp.async of `bytes` bytes: the first `there` are read, the others are
/// zeros. It takes effect at once or at the wait. Until then the destination is NaN.
void cp_async(unsigned to, const void* from, size_t bytes, size_t there);
void cp_async_commit();
void cp_async_wait(unsigned pending);
/// Executes ex2.approx.ftz.f32: 2^x, with an error of up to the two units in the last place that PTX allows.
float ex2_approx(float x);
/// Returns what all lanes of the warp publish, kPublishedBytes apart. The result stays valid until the call after the next.
constexpr size_t kPublishedBytes = 48;
const std::byte* publish(const void* mine, size_t bytes);

}  // namespace emulated_cuda

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> kept{static_cast<Parameters>(arguments)...};
  return emulated_cuda::launch(*config, reinterpret_cast<const void*>(kernel), [kernel, kept] { std::apply(kernel, kept); });
}

inline void __syncthreads() { emulated_cuda::wait_for_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulated_cuda::check_mask(mask);
  emulated_cuda::wait_for_warp();
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  emulated_cuda::check_mask(mask);
  T got;
  emulated_cuda::exchange(&value, &got, sizeof(T), emulated_cuda::lane() / width * width + source % width);
  return got;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int = warpSize) {
  emulated_cuda::check_mask(mask);
  T got;
  emulated_cuda::exchange(&value, &got, sizeof(T), emulated_cuda::lane() ^ lanes);
  return got;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  emulated_cuda::check_mask(mask);
  const int mine = emulated_cuda::lane(), source = mine + static_cast<int>(delta);
  T got;
  emulated_cuda::exchange(&value, &got, sizeof(T), source / width == mine / width ? source : mine);
  return got;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  emulated_cuda::check_mask(mask);
  return emulated_cuda::ballot(predicate != 0);
}
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }  // 0 for NaN
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  emulated_cuda::check_mask(mask);
  const std::byte* all = emulated_cuda::publish(&value, sizeof value);
  unsigned same = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    const T& theirs = *reinterpret_cast<const T*>(all + static_cast<std::size_t>(lane) * emulated_cuda::kPublishedBytes);
    same |= unsigned{theirs == value} << lane;
  }
  return same;
}
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }

inline int atomicAdd(int* to, int more) { return __atomic_fetch_add(to, more, __ATOMIC_RELAXED); }
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
inline unsigned atomicExch(unsigned* at, unsigned value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
inline void __threadfence_system() {}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
template <class T>
T __ldg(const T* at) {
  return *at;
}
using std::max;
using std::min;
