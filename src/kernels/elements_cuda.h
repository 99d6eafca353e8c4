// Element-wise kernels on a GPU. If all operands are aligned well enough, a thread processes several elements at a time, which take 16
// bytes in the widest operand. Otherwise it processes single elements. Included only by kernels/*/*_cuda.cu.
#pragma once
#include <bit>

#include "device/launch_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels {

/// Returns the element unchanged.
struct Same {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

/// kCount adjacent elements (a pack), which are loaded or stored with one instruction.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// An integer type of kBytes bytes. Packs are loaded as a Word, because the compiler would load a struct of bf16 element by element.
template <size_t kBytes>
using Word = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, u64, std::conditional_t<kBytes == 4, u32, std::conditional_t<kBytes == 2, u16, u8>>>>;

/// load_pack() and store_pack() load and store a pack. The address must be a multiple of the pack's size.
template <int kCount, class T>
__device__ Pack<T, kCount> load_pack(const T* from) {
  return std::bit_cast<Pack<T, kCount>>(*reinterpret_cast<const Word<sizeof(T) * kCount>*>(from));
}
template <int kCount, class T>
__device__ void store_pack(const Pack<T, kCount>& pack, T* to) {
  *reinterpret_cast<Word<sizeof(T) * kCount>*>(to) = std::bit_cast<Word<sizeof(T) * kCount>>(pack);
}

template <int kCount, class F, class To, class... From>
__global__ void map_elements(i64 packs, F f, To* to, const From*... from) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += step) {
    Pack<To, kCount> result;
    const auto one = [&](const auto&... in) {
      for (int i = 0; i < kCount; ++i) result.at[i] = narrow<To>(f(widen(in.at[i])...));
    };
    one(load_pack<kCount>(from + p * kCount)...);
    store_pack(result, to + p * kCount);
  }
}

/// Returns a grid for kernels whose thread blocks loop over the tasks: block b does tasks b, b + grid size, and so on.
inline dim3 blocks_for_tasks(i64 tasks) { return dim3(static_cast<unsigned>(std::clamp<i64>(tasks, 1, 1 << 14))); }

inline bool is_aligned(const void* at, i64 bytes) { return reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(bytes) == 0; }

/// Computes to[i] = f(from[i]...) for n elements, in Wide types, rounded once. `to` may be one of the arrays in `from`.
template <class F, class To, class... From>
void map_on_gpu(const char* name, i64 n, F f, To* to, const From*... from) {
  if (n == 0) return;
  constexpr i64 kWidest = std::max({static_cast<i64>(sizeof(To)), static_cast<i64>(sizeof(From))...});
  constexpr int kCount = static_cast<int>(16 / kWidest);
  const auto aligned = [](const auto*... at) { return (is_aligned(at, kCount * static_cast<i64>(sizeof(*at))) && ...); };
  i64 done = 0;
  if (n >= kCount && aligned(to, from...)) {
    done = n / kCount * kCount;
    launch(name, map_elements<kCount, F, To, From...>, blocks_for(n, kCount), dim3(kBlockThreads), n / kCount, f, to, from...);
  }
  if (done < n)
    launch(name, map_elements<1, F, To, From...>, blocks_for(n - done), dim3(kBlockThreads), n - done, f, to + done, (from + done)...);
}

}  // namespace spillway::kernels
