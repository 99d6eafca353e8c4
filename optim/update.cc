#include "optim/update.h"

#include <algorithm>

#include "base/error.h"
#include "device/stream.h"
#include "optim/norm.h"

namespace spillway::optim {
namespace {

// Two tiles, 448 KiB touched: some 10 us of memory traffic, enough to hide the hand-over and small enough to balance a chunk of 16.
constexpr i64 kTaskElems = 2 * kTileElems;

template <class T>
void check(const AdamWRun<T>& run, std::span<const AdamWPart<T>> parts) {
  const auto n = run.weight.size();
  require(run.m.size() == n && run.v.size() == n && run.gradient.size() == n, "[adamw] expected weight, m, v and gradient of one length");
  i64 end = 0;
  for (const AdamWPart<T>& part : parts) {
    require(part.begin >= end && part.end >= part.begin, "[adamw] expected parts in ascending order without overlap");
    end = part.end;
  }
  require(end <= static_cast<i64>(n), "[adamw] expected parts inside the run");
}

template <class T>
void update_range(const AdamWRun<T>& run, std::span<const AdamWPart<T>> parts, i64 begin, i64 end, Isa isa) {
  auto part = std::partition_point(parts.begin(), parts.end(), [&](const AdamWPart<T>& p) { return p.end <= begin; });
  for (; part != parts.end() && part->begin < end; ++part) {
    const i64 from = std::max(begin, part->begin);
    const auto at = static_cast<size_t>(from), count = static_cast<size_t>(std::min(end, part->end) - from);
    adamw_update(run.weight.subspan(at, count), run.m.subspan(at, count), run.v.subspan(at, count), run.gradient.subspan(at, count),
                 part->scalars, isa);
  }
}

}  // namespace

template <class T>
void adamw_update_tiles(const AdamWRun<T>& run, std::span<const AdamWPart<T>> parts, Isa isa) {
  check(run, parts);
  const Isa resolved = resolve(isa);
  Stream::current().for_ranges(static_cast<i64>(run.weight.size()), kTaskElems,
                               [&](i64 begin, i64 end) { update_range(run, parts, begin, end, resolved); });
}

template <class T>
void adamw_update_tiles(const AdamWRun<T>& run, const AdamWScalars<T>& scalars, Isa isa) {
  const AdamWPart<T> whole{0, static_cast<i64>(run.weight.size()), scalars};
  adamw_update_tiles(run, std::span(&whole, 1), isa);
}

template void adamw_update_tiles(const AdamWRun<float>&, std::span<const AdamWPart<float>>, Isa);
template void adamw_update_tiles(const AdamWRun<double>&, std::span<const AdamWPart<double>>, Isa);
template void adamw_update_tiles(const AdamWRun<float>&, const AdamWScalars<float>&, Isa);
template void adamw_update_tiles(const AdamWRun<double>&, const AdamWScalars<double>&, Isa);

}  // namespace spillway::optim
