// Tensor core instructions for GPUs from compute capability 8.0 on: matrix products of a warp's fragments in bf16 or f16, loads of
// fragments from shared memory, and asynchronous copies to shared memory (PTX ISA 9.0: "mma.m16n8k16", "ldmatrix", "cp.async"). Shared
// memory is addressed by a 32-bit address within the shared window, so that an address takes only one register. Included only by
// kernels/*/*_cuda.cu.
#pragma once
#include <cuda_runtime.h>

#include "base/types.h"
#include "tensor/dtype.h"

#ifdef __CUDACC__
#define SPILLWAY_UNROLL _Pragma("unroll")
#define SPILLWAY_NO_UNROLL _Pragma("unroll 1")
#else
#define SPILLWAY_UNROLL
#define SPILLWAY_NO_UNROLL
#endif

namespace spillway::kernels::mma {

/// Returns the address of the thread block's dynamic shared memory, a multiple of 256.
__device__ inline u32 shared_begin() {
#ifdef __CUDA_EMULATED__
  return 0;
#else
  extern __shared__ __align__(256) u8 dynamic_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(dynamic_shared));
#endif
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

/// Loads four matrices of 8 x 8 elements of 16 bits. Lane l passes the address of row l % 8 of
/// matrix l / 8. From each matrix, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
__device__ inline void load_matrices(u32 at, u32 (&to)[4]) {
#ifdef __CUDA_EMULATED__
  emulated_cuda::ldmatrix_x4(at, false, to);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
#endif
}
/// Loads the transposes of four 8 x 8 matrices; lanes must pass the same addresses as for load_matrices().
__device__ inline void load_transposed(u32 at, u32 (&to)[4]) {
#ifdef __CUDA_EMULATED__
  emulated_cuda::ldmatrix_x4(at, true, to);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
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
