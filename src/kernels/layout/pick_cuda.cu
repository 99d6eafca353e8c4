#include "kernels/layout/pick.h"

#include <limits>

#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"

namespace spillway::kernels::cuda {
namespace {

template <class T>
struct Gather {
  Axis axis;
  Picks picks;
  const T* x;
  const i32* index;
  T* out;
  __device__ void operator()(i64 at) const {
    const i64 i = at % axis.inner, row = at / axis.inner, o = row / picks.count, k = row % picks.count;
    const i64 j = index[o * picks.outer + k * picks.step + i * picks.inner];
    const bool inside = 0 <= j && j < axis.n;
    out[at] = inside ? x[(o * axis.n + j) * axis.inner + i] : narrow<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
  }
};

template <class T>
struct ScatterAdd {
  using W = Wide<T>;
  Axis axis;
  Picks picks;
  const T* from;
  const i32* index;
  W* to;
  __device__ void operator()(i64 lane) const {
    const i64 o = lane / axis.inner, i = lane % axis.inner;
    W* const sums = to + first_of_lane(axis, lane);
    for (i64 k = 0; k < picks.count; ++k) {
      const i64 j = index[o * picks.outer + k * picks.step + i * picks.inner];
      if (0 <= j && j < axis.n) {
        sums[j * axis.inner] += widen(from[(o * picks.count + k) * axis.inner + i]);
      } else if (axis.n > 0) {
        sums[0] = std::numeric_limits<W>::quiet_NaN();
      }
    }
  }
};

}  // namespace

void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out) {
  for_dtype("gather", x.dtype(), [&]<class T>(T) {
    for_each_on_gpu("gather", out.elems(), Gather<T>{axis, picks, x.data<T>(), index.data<i32>(), out.data<T>()});
  });
}

void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to) {
  for_dtype("scatter_add", from.dtype(), [&]<class T>(T) {
    for_each_on_gpu("scatter_add", axis.lanes(), ScatterAdd<T>{axis, picks, from.data<T>(), index.data<i32>(), to.data<Wide<T>>()});
  });
}

}  // namespace spillway::kernels::cuda
