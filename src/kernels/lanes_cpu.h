// Distributes the lanes of an axis (the lines of elements along it, axis.h) over CPU threads. Each lane is computed by one task, so the
// results are bitwise the same for any number of threads. Included only by kernels/*/*_cpu.cc.
#pragma once
#include <algorithm>

#include "kernels/axis.h"

namespace spillway::kernels {

/// Calls f(lane, index of the lane's first element) for every lane.
template <class F>
void for_lanes(const Axis& axis, F f) {
  constexpr i64 kGrain = 1 << 14;  // the approximate number of elements of a task
  Stream::current().for_ranges(axis.lanes(), std::max<i64>(1, kGrain / std::max<i64>(1, axis.n)), [=](i64 begin, i64 end) {
    for (i64 lane = begin; lane < end; ++lane) f(lane, first_of_lane(axis, lane));
  });
}

}  // namespace spillway::kernels
