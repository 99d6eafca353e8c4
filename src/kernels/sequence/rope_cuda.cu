#include "kernels/sequence/rope.h"

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"

namespace spillway::kernels::cuda {
namespace {

template <class W>
struct Frequencies {
  W of[kMaxRopePairs];
};

// A thread block rotates all heads of one position at a time. It computes the cosines and sines of a position once for all heads.
template <int kCount, class T>
__global__ void turn_heads(i64 rows, i64 heads, int width, int pairs, const i32* position, Frequencies<Wide<T>> frequency, Wide<T> scaling,
                           bool back, const T* x, T* y) {
  using W = Wide<T>;
  __shared__ W cosine[kMaxRopePairs], sine[kMaxRopePairs];
  const int packs = pairs / kCount, others = (width - 2 * pairs) / kCount;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
      const W angle = static_cast<W>(position[row]) * frequency.of[i];
      cosine[i] = std::cos(angle) * scaling;
      sine[i] = (back ? -std::sin(angle) : std::sin(angle)) * scaling;
    }
    __syncthreads();
    for (i64 p = threadIdx.x; p < heads * packs; p += blockDim.x) {
      const int first = static_cast<int>(p % packs) * kCount;
      const i64 at = (row * heads + p / packs) * width + first;
      auto a = load_pack<kCount>(x + at), b = load_pack<kCount>(x + at + pairs);
      for (int i = 0; i < kCount; ++i) {
        const W u = widen(a.at[i]), v = widen(b.at[i]), c = cosine[first + i], s = sine[first + i];
        a.at[i] = narrow<T>(u * c - v * s);
        b.at[i] = narrow<T>(v * c + u * s);
      }
      store_pack(a, y + at);
      store_pack(b, y + at + pairs);
    }
    for (i64 p = threadIdx.x; p < heads * others; p += blockDim.x) {
      const i64 at = (row * heads + p / others) * width + 2 * pairs + p % others * kCount;
      store_pack(load_pack<kCount>(x + at), y + at);
    }
    __syncthreads();
  }
}

}  // namespace

void rope(const Tensor& x, const Tensor& positions, std::span<const double> frequencies, double scaling, bool back, const Tensor& y) {
  if (y.elems() == 0) return;
  for_dtype("rope", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    constexpr int kCount = 16 / sizeof(T);
    Frequencies<W> frequency{};
    std::transform(frequencies.begin(), frequencies.end(), frequency.of, [](double f) { return static_cast<W>(f); });
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i64 rows = positions.elems();
    const int pairs = static_cast<int>(frequencies.size());
    const int width = static_cast<int>(x.size(3));
    const bool packs = pairs % kCount == 0 && width % kCount == 0 && is_aligned(from, 16) && is_aligned(to, 16);
    launch("rope", packs ? turn_heads<kCount, T> : turn_heads<1, T>, blocks_for_tasks(rows), dim3(kBlockThreads), rows, x.size(2), width,
           pairs, positions.data<i32>(), frequency, static_cast<W>(scaling), back, from, to);
  });
}

}  // namespace spillway::kernels::cuda
