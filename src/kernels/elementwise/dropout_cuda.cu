#include "kernels/elementwise/dropout.h"

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Each thread computes packs of kCount adjacent elements of one sample.
// Every element has its own counter of the random generator, as on the CPU.
template <int kCount, class T>
__global__ void drop_elements(i64 packs, i64 packs_of_sample, u64 first_sample, RandomKey key, u64 limit, Wide<T> keep, const T* x, T* y) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 p = i64{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += step) {
    const i64 b = p / packs_of_sample;
    const u64 sample = first_sample + static_cast<u64>(b), first = static_cast<u64>((p - b * packs_of_sample) * kCount);
    auto pack = load_pack<kCount>(x + p * kCount);
    for (int i = 0; i < kCount; ++i) {
      const bool dropped = dropout_draw(key, sample, first + static_cast<u64>(i)) < limit;
      pack.at[i] = narrow<T>(dropped ? Wide<T>(0) : widen(pack.at[i]) * keep);
    }
    store_pack(pack, y + p * kCount);
  }
}

}  // namespace

void dropout(const Tensor& x, double p, RandomKey key, i64 first_sample, const Tensor& y) {
  for_dtype("dropout", x.dtype(), [&]<class T>(T) {
    constexpr int kCount = 16 / sizeof(T);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i64 sample = x.elems() / x.size(0);
    const bool whole = sample % kCount == 0 && is_aligned(from, 16) && is_aligned(to, 16);
    const i64 packs = x.elems() / (whole ? kCount : 1), packs_of_sample = sample / (whole ? kCount : 1);
    launch("dropout", whole ? drop_elements<kCount, T> : drop_elements<1, T>, blocks_for(packs), dim3(kBlockThreads), packs,
           packs_of_sample, static_cast<u64>(first_sample), key, dropout_limit(p), static_cast<Wide<T>>(1 / (1 - p)), from, to);
  });
}

}  // namespace spillway::kernels::cuda
