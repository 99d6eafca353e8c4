// Tensor core instructions for GPUs from compute capability 8.0 on: matrix products of a warp's fragments in bf16 or f16, loads of
// fragments from shared memory, and asynchronous copies to shared memory (PTX ISA 9.0: "mma.m16n8k16", "ldmatrix", "cp.async"). Shared
// memory is addressed by a 32-bit address within the shared window, so that an address takes only one register. Included only by
// kernels/*/*_cuda.*.
#pragma once
#include "base/types.h"
#include "device/launch_cuda.h"
#include "tensor/dtype.h"

#ifdef __CUDACC__
#define SPILLWAY_UNROLL _Pragma("unroll")
#define SPILLWAY_NO_UNROLL _Pragma("unroll 1")
#else
#define SPILLWAY_UNROLL
#define SPILLWAY_NO_UNROLL
#endif

namespace spillway::kernels::mma {

/// lane() returns the index of the calling thread in its warp, warp() that of its warp in a one-dimensional thread block.
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }
/// fragment_row() and fragment_column() return where this lane's elements lie within a fragment of 16 x 8 elements. A lane holds two
/// rows, fragment_row() and the row 8 below it, and two columns, fragment_column() and the next one.
__device__ inline int fragment_row() { return lane() / 4; }
__device__ inline int fragment_column() { return lane() % 4 * 2; }

/// Returns the address of the thread block's dynamic shared memory, a multiple of 256.
__device__ inline u32 shared_begin() {
#ifdef __CUDA_EMULATED__
  return 0;
#else
  extern __shared__ __align__(256) u8 dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
#endif
}

/// Launches `kernel` in a grid of `blocks` one-dimensional thread blocks that have `shared_bytes` of that memory each. Error messages
/// contain `name`.
template <class... Parameters, class... Arguments>
void launch_with_shared(const char* name, void (*kernel)(Parameters...), dim3 blocks, int threads, int shared_bytes,
                        Arguments&&... arguments) {
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  cudaLaunchConfig_t config{};
  config.gridDim = blocks, config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes), config.stream = Stream::current().queue;
  cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

/// Returns x, but in a way that the compiler cannot see that the result is x. The compiler then computes values that depend on it after a
/// loop, instead of computing them before and holding them in registers throughout the loop.
__device__ inline int again(int x) {
#ifndef __CUDA_EMULATED__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// Begins to copy 16 bytes to shared memory, or to write 16 zero bytes there if `there` is false. Both addresses are multiples of 16. This
/// thread may read the bytes after wait_for_copies().
__device__ inline void copy_word(u32 to, const void* from, bool there) {
#ifdef __CUDA_EMULATED__
  emulated_cuda::cp_async(to, from, 16, there ? 16 : 0);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
#endif
}
/// Begins to copy one float to shared memory, or to write a zero to shared memory if `there` is false.
__device__ inline void copy_float(u32 to, const float* from, bool there) {
#ifdef __CUDA_EMULATED__
  emulated_cuda::cp_async(to, from, 4, there ? 4 : 0);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
               : "memory");
#endif
}
/// Waits for all copies that this thread began. Other threads may read the bytes after the thread block has then been synchronised.
__device__ inline void wait_for_copies() {
#ifdef __CUDA_EMULATED__
  emulated_cuda::cp_async_commit();
  emulated_cuda::cp_async_wait(0);
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Ends a group of the copies that this thread began since the last group ended. The group may be empty.
__device__ inline void end_group_of_copies() {
#ifdef __CUDA_EMULATED__
  emulated_cuda::cp_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most the kLast latest of this thread's groups of copies are still under way.
template <int kLast>
__device__ void wait_for_groups_before() {
#ifdef __CUDA_EMULATED__
  emulated_cuda::cp_async_wait(kLast);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kLast) : "memory");
#endif
}

template <class T>
__device__ T load_shared(u32 at) {
#ifdef __CUDA_EMULATED__
  return *reinterpret_cast<const T*>(emulated_cuda::dynamic_shared() + at);
#else
  return *static_cast<const T*>(__cvta_shared_to_generic(at));
#endif
}
template <class T>
__device__ void store_shared(u32 at, T x) {
#ifdef __CUDA_EMULATED__
  *reinterpret_cast<T*>(emulated_cuda::dynamic_shared() + at) = x;
#else
  *static_cast<T*>(__cvta_shared_to_generic(at)) = x;
#endif
}

/// Loads four matrices of 8 x 8 elements of 16 bits. Lane l passes the address of row l % 8 of matrix l / 8. From each
/// matrix, or from its transpose if kTransposed, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
template <bool kTransposed = false>
__device__ void load_matrices(u32 at, u32 (&to)[4]) {
#ifdef __CUDA_EMULATED__
  emulated_cuda::ldmatrix_x4(at, kTransposed, to);
#else
#define SPILLWAY_LDMATRIX(trans)                                                           \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                        \
               : "r"(at))
  if constexpr (kTransposed) {
    SPILLWAY_LDMATRIX(".trans");
  } else {
    SPILLWAY_LDMATRIX("");
  }
#undef SPILLWAY_LDMATRIX
#endif
}

/// Computes c[16, 8] += a[16, 16] b[16, 8], where a and b are of type H and c is f32. Lane l holds columns 2 (l % 4) and 2 (l % 4) + 1 of
/// c: of row l / 4 in c[0] and c[1], of row l / 4 + 8 in c[2] and c[3].
template <class H>
__device__ void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr bool kF16 = std::is_same_v<H, Float16>;
#ifdef __CUDA_EMULATED__
  emulated_cuda::mma_m16n8k16(kF16, c, a, b0, b1);
#else
  if constexpr (kF16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

/// Sets kM x kN fragments of c to zero.
template <int kM, int kN>
__device__ void clear(float (&x)[kM][kN][4]) {
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) x[m][n][i] = 0;
    }
  }
}

/// Rounds two numbers to H and returns them as one word, with `first` in the lower half.
template <class H>
__device__ u32 pack_halves(float first, float second) {
#ifdef __CUDA_EMULATED__
  return narrow<H>(first).bits | static_cast<u32>(narrow<H>(second).bits) << 16;
#else
  u32 pair;
  if constexpr (std::is_same_v<H, Float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

/// Returns 2^x with an error of at most 2 ulp. Returns 0 if the result would be below the normal numbers.
__device__ inline float exp2_fast(float x) {
#ifdef __CUDA_EMULATED__
  return emulated_cuda::ex2_approx(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/// Returns 1 / x with an error of at most 1 ulp, and 0 if x is infinite. x must not be subnormal.
__device__ inline float reciprocal_fast(float x) {
#ifdef __CUDA_EMULATED__
  return 1 / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

}  // namespace spillway::kernels::mma
