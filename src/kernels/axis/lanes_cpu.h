// Lanes shared out to threads: each is one task's, whatever their number. Included by kernels/axis/*_cpu.cc alone.
#pragma once
#include <algorithm>

#include "kernels/axis/axis.h"

namespace spillway::kernels {

/// f(lane, where its first element lies).
template <class F>
void for_lanes(const Axis& axis, F f) {
  constexpr i64 kGrain = 1 << 14;  // elements of one task
  Stream::current().for_ranges(axis.lanes(), std::max<i64>(1, kGrain / std::max<i64>(1, axis.n)), [=](i64 begin, i64 end) {
    for (i64 lane = begin; lane < end; ++lane) f(lane, first_of_lane(axis, lane));
  });
}

}  // namespace spillway::kernels
