#include "kernels/rows/best.h"

#include <limits>

#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Combines two elements, each with its index: returns the one that ranks first.
struct Before {
  Best which;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return comes_before(which, a, 0, b, 1) ? a : b;
  }
};
struct Lower {
  __device__ i32 operator()(i32 a, i32 b) const { return a < b ? a : b; }
};

// Finds the k best elements of a lane (a line of elements along the axis), one after the other: the next best is the best of the elements
// that rank after the previous one.
template <class T>
struct BestOfLane {
  using W = Wide<T>;
  Best which;
  const T* x;
  i64 k;
  T* values;
  i32* index;

  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const W last = which == Best::largest ? -std::numeric_limits<W>::infinity() : std::numeric_limits<W>::infinity();
    const i64 out = first_of_lane(Axis{axis.outer, k, axis.inner}, lane);
    W before{};
    i32 before_at = -1;  // the index of the element that was found last; -1 if none has been found yet
    for (i64 i = 0; i < k; ++i) {
      W mine = last;
      i32 mine_at = std::numeric_limits<i32>::max();
      for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
        const W value = widen(x[first + j * axis.inner]);
        if (before_at >= 0 && !comes_before(which, before, before_at, value, j)) continue;
        if (comes_before(which, value, j, mine, mine_at)) mine = value, mine_at = static_cast<i32>(j);
      }
      const W top = Rows::fold(mine, Before{which});
      const bool is_top = mine == top || (mine != mine && top != top);
      before_at = Rows::fold(is_top ? mine_at : std::numeric_limits<i32>::max(), Lower());
      before = top;
      if (Rows::rank() != 0) continue;
      index[out + i * axis.inner] = before_at;
      if (values) values[out + i * axis.inner] = x[first + before_at * axis.inner];
    }
  }
};

}  // namespace

void best(Best which, const Tensor& x, const Axis& axis, i64 k, const Tensor& values, const Tensor& index) {
  for_dtype("best", x.dtype(), [&]<class T>(T) {
    for_lanes_on_gpu("best", axis, BestOfLane<T>{which, x.data<T>(), k, data_or_null<T>(values), index.data<i32>()});
  });
}

}  // namespace spillway::kernels::cuda
