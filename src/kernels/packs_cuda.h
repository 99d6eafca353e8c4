// Rows of a matrix on a GPU, some neighbouring elements at a time: by one access where that can be, else one by one. Which thread gets
// which elements does not depend on it, so that no sum changes with where a tensor lies. Included by *_cuda.cu alone.
#pragma once
#include "kernels/elements_cuda.h"

namespace spillway::kernels {

/// As many as fill 16 bytes.
template <class T>
constexpr int kPackOf = static_cast<int>(16 / sizeof(T));

/// Whether packs of kCount elements of every row begin at a multiple of their size; null is none.
template <int kCount, class T>
bool rows_aligned(const T* first, i64 stride) {
  return first == nullptr || (stride % kCount == 0 && is_aligned(first, kCount * static_cast<i64>(sizeof(T))));
}

/// Elements [0, kCount) from `from` on, of which `left` (perhaps more, perhaps fewer or none) belong to the row; `pad` for the others.
template <int kCount, class T>
__device__ Pack<Wide<T>, kCount> load_pack(const T* from, i64 left, bool aligned, Wide<T> pad = 0) {
  Pack<Wide<T>, kCount> to;
  if (aligned && left >= kCount) {
    const auto all = *reinterpret_cast<const Pack<T, kCount>*>(from);
    for (int i = 0; i < kCount; ++i) to.at[i] = widen(all.at[i]);
  } else {
    for (int i = 0; i < kCount; ++i) to.at[i] = i < left ? widen(from[i]) : pad;
  }
  return to;
}

template <int kCount, class T>
__device__ void store_pack(const Pack<Wide<T>, kCount>& from, T* to, i64 left, bool aligned) {
  if (aligned && left >= kCount) {
    Pack<T, kCount> all;
    for (int i = 0; i < kCount; ++i) all.at[i] = narrow<T>(from.at[i]);
    *reinterpret_cast<Pack<T, kCount>*>(to) = all;
  } else {
    for (int i = 0; i < kCount && i < left; ++i) to[i] = narrow<T>(from.at[i]);
  }
}

}  // namespace spillway::kernels
