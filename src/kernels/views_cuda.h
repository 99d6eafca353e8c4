// Element-wise kernels on a GPU over views of any strides. Axes are sorted by the first view's order in memory, and adjacent axes are
// merged where all views allow it, so contiguous memory becomes one long axis. Along the innermost axis a thread processes 16 bytes at a
// time, if the alignment allows it and the computation is short. Included only by kernels/*/*_cuda.cu.
#pragma once
#include <utility>

#include "kernels/elements_cuda.h"
#include "tensor/tensor.h"

namespace spillway::kernels {

template <int kViews>
struct Axes {
  int rank = 0;  // the number of merged axes; axes of size 1 are dropped, so a single element has no axes
  i64 extent[Shape::kMaxRank] = {};
  i64 stride[kViews][Shape::kMaxRank] = {};
  i64 elems() const {
    i64 n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[i];
    return n;
  }
};

inline Shape strides_of(const Tensor& t) {
  Shape strides = t.shape();
  for (int i = 0; i < t.rank(); ++i) strides.set(i, t.stride(i));
  return strides;
}

/// Returns the merged axes of several views of one shape, from the outermost axis of the first view to its innermost. A stride of 0 means
/// that a view is broadcast along the axis.
template <int kViews>
Axes<kViews> merged_axes(const Shape& extents, const Shape (&strides)[kViews]) {
  int order[Shape::kMaxRank], count = 0;
  for (int i = 0; i < extents.rank(); ++i) {
    if (extents[i] != 1) order[count++] = i;
  }
  std::stable_sort(order, order + count, [&](int a, int b) { return strides[0][a] > strides[0][b]; });
  Axes<kViews> axes;
  for (int at = 0; at < count; ++at) {
    const int i = order[at];
    bool joins = axes.rank > 0;
    for (int v = 0; v < kViews && joins; ++v) joins = axes.stride[v][axes.rank - 1] == strides[v][i] * extents[i];
    if (!joins) axes.extent[axes.rank++] = 1;
    axes.extent[axes.rank - 1] *= extents[i];
    for (int v = 0; v < kViews; ++v) axes.stride[v][axes.rank - 1] = strides[v][i];
  }
  return axes;
}

/// Computes the offset of element `at` in each view. Index may be 32 bits wide, since 32-bit divisions are several times faster than 64-bit
/// ones.
template <class Index, int kViews>
__device__ void find(const Axes<kViews>& axes, Index at, i64 (&offsets)[kViews]) {
  for (int v = 0; v < kViews; ++v) offsets[v] = 0;
  for (int axis = axes.rank - 1; axis >= 0; --axis) {
    const Index extent = static_cast<Index>(axes.extent[axis]), outer = at / extent;
    const i64 i = static_cast<i64>(at - outer * extent);
    at = outer;
    for (int v = 0; v < kViews; ++v) offsets[v] += i * axes.stride[v][axis];
  }
}

template <int kCount, class T>
__device__ Pack<T, kCount> load_or_repeat(const T* from, bool repeat) {
  if (!repeat) return load_pack<kCount>(from);
  Pack<T, kCount> all;
  const T one = *from;
  for (int i = 0; i < kCount; ++i) all.at[i] = one;
  return all;
}

// Computes to = f(from...) pack by pack; a pack is several adjacent elements. The extent of the innermost axis is given in packs. A view
// that is broadcast along this axis repeats one element for the whole pack.
template <int kCount, class Index, class F, class To, class... From>
__global__ void map_views(Index packs, Axes<1 + sizeof...(From)> axes, F f, To* to, const From*... from) {
  const Index step = gridDim.x * blockDim.x;
  for (Index p = blockIdx.x * blockDim.x + threadIdx.x; p < packs; p += step) {
    i64 at[1 + sizeof...(From)];
    find(axes, p, at);
    const int last = axes.rank - 1;
    Pack<To, kCount> result;
    const auto one = [&](const auto&... in) {
      for (int i = 0; i < kCount; ++i) result.at[i] = narrow<To>(f(widen(in.at[i])...));
    };
    [&]<int... v>(std::integer_sequence<int, v...>) {
      one(load_or_repeat<kCount>(from + at[1 + v], kCount > 1 && axes.stride[1 + v][last] == 0)...);
    }
    (std::make_integer_sequence<int, sizeof...(From)>());
    store_pack(result, to + at[0]);
  }
}

/// Returns whether view v can be accessed in packs of kCount adjacent elements along the innermost axis. The packs must be aligned in
/// memory; an input view may also be broadcast along that axis.
template <int kCount, int kViews, class T>
bool has_packs(const Axes<kViews>& axes, int v, const T* first) {
  const int last = axes.rank - 1;
  if (axes.stride[v][last] == 0) return v > 0;
  bool all = axes.stride[v][last] == 1 && is_aligned(first, kCount * static_cast<i64>(sizeof(T)));
  for (int i = 0; i < last; ++i) all = all && axes.stride[v][i] % kCount == 0;
  return all;
}

template <int kCount, class F, class To, class... From>
void launch_map_views(const char* name, const Axes<1 + sizeof...(From)>& axes, F f, To* to, const From*... from) {
  const i64 packs = axes.elems();
  const dim3 blocks = blocks_for(packs);
  if (packs < i64{1} << 31) {
    launch(name, map_views<kCount, u32, F, To, From...>, blocks, dim3(kBlockThreads), static_cast<u32>(packs), axes, f, to, from...);
  } else {
    launch(name, map_views<kCount, u64, F, To, From...>, blocks, dim3(kBlockThreads), static_cast<u64>(packs), axes, f, to, from...);
  }
}

/// A functor f that derives from OneAtATime<true> is compiled for single elements only, not for packs. Unrolling a long formula over a pack
/// would make the code several times longer.
template <bool>
struct OneAtATime {};
template <class F>
constexpr bool kOneAtATime = std::is_base_of_v<OneAtATime<true>, F>;

/// Computes to = f(from...) in Wide types, rounded once. No two elements of `to` may share
/// memory. `to` may be one of the views in `from`, if that view has the axes of `to`.
template <class F, class To, class... From>
void map_views_on_gpu(const char* name, Axes<1 + sizeof...(From)> axes, F f, To* to, const From*... from) {
  constexpr int kCount = kOneAtATime<F> ? 1 : static_cast<int>(16 / std::max({sizeof(To), sizeof(From)...}));
  const int last = axes.rank - 1;
  int v = 1;
  if (kCount > 1 && axes.rank > 0 && axes.extent[last] % kCount == 0 && has_packs<kCount>(axes, 0, to) &&
      (has_packs<kCount>(axes, v++, from) && ...)) {
    axes.extent[last] /= kCount;
    for (auto& strides : axes.stride) strides[last] *= kCount;
    return launch_map_views<kCount>(name, axes, f, to, from...);
  }
  launch_map_views<1>(name, axes, f, to, from...);
}

}  // namespace spillway::kernels
