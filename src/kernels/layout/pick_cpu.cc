#include "kernels/layout/pick.h"

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/lanes_cpu.h"

namespace spillway::kernels {
namespace {

void check_picks(const Tensor& whole, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& picked) {
  require_axis(axis, whole);
  require_axis({axis.outer, picks.count, axis.inner}, picked);
  const bool all = picks.outer == 0;
  require(index.is_contiguous() && index.dtype() == DType::int32 && index.elems() == picks.count * (all ? 1 : axis.lanes()),
          "[gather] expected contiguous int32 indices, one list for all lanes or one list for each lane");
}

i64 checked(i32 place, const Axis& axis) {
  if (0 <= place && place < axis.n) return place;
  throw Error(ErrorCode::data,
              "[gather] expected indices in [0, " + std::to_string(axis.n) + ") along the axis, got " + std::to_string(place));
}

}  // namespace

void gather(const Tensor& x, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& out) {
  check_picks(x, axis, index, picks, out);
  if (out.device().is_meta() || out.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(out, gather(x, axis, index, picks, out));
  for_width(x.dtype(), [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(x.raw());
    T* to = reinterpret_cast<T*>(out.raw());
    const i32* places = index.data<i32>();
    // A task copies some of the rows (o, k) of `out`, each of `inner` adjacent elements.
    Stream::current().for_ranges(axis.outer * picks.count, std::max<i64>(1, (1 << 14) / std::max<i64>(1, axis.inner)),
                                 [=](i64 begin, i64 end) {
                                   for (i64 row = begin; row < end; ++row) {
                                     const i64 o = row / picks.count, k = row % picks.count;
                                     const i32* place = places + o * picks.outer + k * picks.step;
                                     for (i64 i = 0; i < axis.inner; ++i) {
                                       const i64 j = checked(place[i * picks.inner], axis);
                                       to[row * axis.inner + i] = from[(o * axis.n + j) * axis.inner + i];
                                     }
                                   }
                                 });
  });
}

void scatter_add(const Tensor& from, const Axis& axis, const Tensor& index, const Picks& picks, const Tensor& to) {
  check_picks(to, axis, index, picks, from);
  require(to.dtype() == wide_dtype(from.dtype()), "[scatter_add] expected a destination in f32 (f64 if the source is f64)");
  if (to.device().is_meta() || from.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(to, scatter_add(from, axis, index, picks, to));
  for_dtype("scatter_add", from.dtype(), [&]<class T>(T) {
    const T* added = from.data<T>();
    Wide<T>* sums = to.data<Wide<T>>();
    const i32* places = index.data<i32>();
    constexpr i64 kLanes = 256;  // the number of adjacent lanes (lines of elements along the axis) that a task processes
    const i64 blocks = ceil_div(axis.inner, kLanes);
    Stream::current().run(axis.outer * blocks, [=](i64 task, int) {
      const i64 o = task / blocks, begin = task % blocks * kLanes, end = std::min(axis.inner, begin + kLanes);
      for (i64 k = 0; k < picks.count; ++k) {
        const i32* place = places + o * picks.outer + k * picks.step;
        for (i64 i = begin; i < end; ++i) {
          const i64 j = checked(place[i * picks.inner], axis);
          sums[(o * axis.n + j) * axis.inner + i] += widen(added[(o * picks.count + k) * axis.inner + i]);
        }
      }
    });
  });
}

}  // namespace spillway::kernels
