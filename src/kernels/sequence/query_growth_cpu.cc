#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/sequence/query_growth.h"

namespace spillway::kernels {

void grow_queries(const Tensor& x, const Tensor& positions, double growth, i64 original, const Tensor& y) {
  require(x.rank() == 4 && x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape() && original > 0,
          "[grow_queries] expected contiguous x and y [B, T, H, D] and a number of original positions above 0");
  require(positions.dtype() == DType::int32 && positions.is_contiguous() && positions.elems() == x.size(0) * x.size(1),
          "[grow_queries] expected contiguous int32 positions [B, T]");
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, grow_queries(x, positions, growth, original, y));
  const i64 row_elems = x.size(2) * x.size(3);
  for_dtype("grow_queries", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i32* position = positions.data<i32>();
    Stream::current().for_ranges(positions.elems(), std::max<i64>(1, (1 << 14) / row_elems), [=](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        const W turns = static_cast<W>(position[row] / original);
        const W factor = widen(narrow<T>(1 + static_cast<W>(growth) * std::log(1 + turns)));
        for (i64 i = row * row_elems; i < (row + 1) * row_elems; ++i) to[i] = narrow<T>(widen(from[i]) * factor);
      }
    });
  });
}

}  // namespace spillway::kernels
