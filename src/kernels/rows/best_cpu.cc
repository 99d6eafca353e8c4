#include "kernels/rows/best.h"

#include <limits>
#include <numeric>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/lanes_cpu.h"

namespace spillway::kernels {
namespace {

// Writes the indices of the k best elements of a lane (a line of elements along the axis) to `order`. before(i, j) returns whether element
// i ranks before element j.
template <class Before>
void sort_best(i64 n, i64 k, std::vector<i32>& order, Before before) {
  if (k == 1) {
    order.assign(1, 0);
    for (i64 j = 1; j < n; ++j) {
      if (before(static_cast<i32>(j), order[0])) order[0] = static_cast<i32>(j);
    }
    return;
  }
  order.resize(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
}

}  // namespace

i64 best_workspace_bytes([[maybe_unused]] const Axis& axis, [[maybe_unused]] i64 k, [[maybe_unused]] DType dtype) {
  if constexpr (kHasCuda) {
    if (Stream::current().device.works_as_cuda()) return cuda::best_workspace_bytes(axis, k, dtype);
  }
  return 0;
}

void best(Best which, const Tensor& x, const Axis& axis, i64 k, const Tensor& values, const Tensor& index, const Tensor& workspace) {
  require_axis(axis, x);
  require(1 <= k && k <= axis.n && axis.n <= std::numeric_limits<i32>::max(), "[best] expected 1 <= k <= the axis' length < 2^31");
  require_axis({axis.outer, k, axis.inner}, index);
  require(workspace.bytes() >= best_workspace_bytes(axis, k, x.dtype()), "[best] expected a workspace of at least best_workspace_bytes()");
  if (index.device().is_meta() || index.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(index, best(which, x, axis, k, values, index, workspace));
  for_dtype("best", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = data_or_null<T>(values);
    i32* places = index.data<i32>();
    for_lanes(axis, [=](i64 lane, i64 first) {
      std::vector<i32> order;
      const auto at = [=](i64 j) { return widen(from[first + j * axis.inner]); };
      sort_best(axis.n, k, order, [=](i32 i, i32 j) { return comes_before(which, at(i), i, at(j), j); });
      const i64 out = first_of_lane({axis.outer, k, axis.inner}, lane);
      for (i64 i = 0; i < k; ++i) {
        const i32 j = order[static_cast<size_t>(i)];
        places[out + i * axis.inner] = j;
        if (to) to[out + i * axis.inner] = from[first + j * axis.inner];
      }
    });
  });
}

}  // namespace spillway::kernels
