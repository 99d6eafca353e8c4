#include "kernels/layout/layout.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

// The extents and strides of the two views that a copy reads and writes. Axes of size 1 are added in front until there are six.
struct Axes {
  std::array<i64, Shape::kMaxRank> extent, from, to;
};

Axes axes_of(const Tensor& from, const Tensor& to) {
  Axes axes;
  axes.extent.fill(1);
  axes.from.fill(0);
  axes.to.fill(0);
  const int pad = Shape::kMaxRank - from.rank();
  for (int i = 0; i < from.rank(); ++i) {
    const auto at = static_cast<size_t>(pad + i);
    axes.extent[at] = from.size(i);
    axes.from[at] = from.stride(i);
    axes.to[at] = to.stride(i);
  }
  return axes;
}

template <class T>
void copy_row(const T* from, i64 from_stride, T* to, i64 to_stride, i64 n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (i64 i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class T>
void copy_rows(const Axes& axes, const T* from, T* to, i64 begin, i64 end) {
  for (i64 row = begin; row < end; ++row) {
    i64 rest = row, source = 0, target = 0;
    for (size_t axis = Shape::kMaxRank - 1; axis-- > 0;) {
      const i64 at = rest % axes.extent[axis];
      rest /= axes.extent[axis];
      source += at * axes.from[axis];
      target += at * axes.to[axis];
    }
    copy_row(from + source, axes.from.back(), to + target, axes.to.back(), axes.extent.back());
  }
}

}  // namespace

void copy_view(const Tensor& from, const Tensor& to) {
  require(from.shape() == to.shape() && from.dtype() == to.dtype(), "[copy_view] expected source and destination of equal shape and dtype");
  if (to.device().is_meta() || to.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(to, copy_view(from, to));
  const Axes axes = axes_of(from, to);
  const i64 columns = axes.extent.back();
  for_width(to.dtype(), [&]<class T>(T) {
    const T* source = reinterpret_cast<const T*>(from.raw());
    T* target = reinterpret_cast<T*>(to.raw());
    Stream::current().for_ranges(to.elems() / columns, std::max<i64>(1, (1 << 14) / columns),
                                 [&](i64 begin, i64 end) { copy_rows(axes, source, target, begin, end); });
  });
}

void fill_zero(const Tensor& to) {
  require(to.is_contiguous(), "[fill_zero] expected a contiguous tensor");
  if (to.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(to, fill_zero(to));
  std::byte* bytes = to.raw();
  Stream::current().for_ranges(to.bytes(), 1 << 18,
                               [=](i64 begin, i64 end) { std::memset(bytes + begin, 0, static_cast<size_t>(end - begin)); });
}

void triangle(const Tensor& x, bool lower, i64 diagonal, const Tensor& y) {
  require(x.rank() >= 2 && x.shape() == y.shape() && x.dtype() == y.dtype() && x.is_contiguous() && y.is_contiguous(),
          "[triangle] expected source and destination as contiguous matrices of the same shape and dtype");
  if (y.device().is_meta() || y.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(y, triangle(x, lower, diagonal, y));
  const i64 rows = x.size(-2), columns = x.size(-1);
  for_width(x.dtype(), [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(x.raw());
    T* to = reinterpret_cast<T*>(y.raw());
    Stream::current().for_ranges(x.elems() / columns, std::max<i64>(1, (1 << 14) / columns), [=](i64 begin, i64 end) {
      for (i64 at = begin; at < end; ++at) {
        const i64 edge = at % rows + diagonal, first = lower ? 0 : std::clamp<i64>(edge, 0, columns),
                  last = lower ? std::clamp<i64>(edge + 1, 0, columns) : columns;
        T* const row = to + at * columns;
        std::fill(row, row + first, T(0));
        std::copy(from + at * columns + first, from + at * columns + last, row + first);
        std::fill(row + last, row + columns, T(0));
      }
    });
  });
}

}  // namespace spillway::kernels
