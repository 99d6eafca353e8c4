// Loads and stores of several adjacent elements of a matrix row on a GPU. They take one access if the
// alignment allows that, and one access per element otherwise. The alignment does not change which elements a
// thread gets, so no sum depends on where a tensor lies in memory. Only *_cuda.* files include this header.
#pragma once
#include "kernels/elements_cuda.h"

namespace spillway::kernels {

/// The number of elements of type T that fill 16 bytes.
template <class T>
constexpr int kPackOf = static_cast<int>(16 / sizeof(T));

/// Returns whether packs of kCount elements are aligned in every row of a matrix. A null pointer counts as aligned.
template <int kCount, class T>
bool rows_aligned(const T* first, i64 stride) {
  return first == nullptr || (stride % kCount == 0 && is_aligned(first, kCount * static_cast<i64>(sizeof(T))));
}

/// Loads kCount elements from `from`. Only the first `left` of them belong to the row;
/// the others become `pad`. `left` may be any number, also 0 or more than kCount.
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
