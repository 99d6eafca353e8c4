// Which part of a group's tiles each data-parallel rank holds and steps: ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models", 2020). Stage 0 splits nothing, 1 the optimizer state, 2 the gradients too, 3 the weights too. Parts
// are whole tiles, contiguous in the group, and differ by one tile at most; the first ranks hold the larger ones. Of what is
// stepped parameter by parameter they are whole parameters, and some ranks' may be empty. A value.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "offload/blob.h"
#include "parallel/layout/layout.h"

namespace spillway::parallel {

using offload::TileRange;

inline TileRange whole(const Group& group) { return {0, group.elems / kTileElems}; }

/// In tiles of its group.
inline TileRange tiles_of(const Bucket& bucket) {
  const i64 begin = bucket.begin / kTileElems;
  return {begin, begin + bucket.tiles};
}

/// Empty ranges begin anywhere.
inline TileRange intersection(TileRange a, TileRange b) {
  const i64 begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The tile nearest to `tile` at which one of a group's parameters begins or the last one ends.
inline i64 nearest_cut(const Group& group, i64 tile) {
  i64 nearest = whole(group).end;
  for (const Segment& s : group.segments) {
    const i64 begin = s.begin / kTileElems;
    if (std::abs(begin - tile) <= std::abs(nearest - tile)) nearest = begin;
  }
  return nearest;
}

struct Sharding {
  int stage = 0;
  int rank = 0, ranks = 1;  // data-parallel

  bool splits_state() const { return ranks > 1 && stage >= 1; }
  /// Of `tiles` tiles the part of rank r.
  TileRange part(i64 tiles, int r) const {
    const i64 each = tiles / ranks, rest = tiles % ranks;
    const i64 begin = each * r + std::min<i64>(r, rest);
    return {begin, begin + each + (r < rest)};
  }
  /// Of a group by parameter whole ones: cut where one ends that is nearest to the even part's end.
  TileRange part(const Group& group, int r) const {
    const i64 tiles = whole(group).count();
    if (!group.by_parameter) return part(tiles, r);
    return {nearest_cut(group, part(tiles, r).begin), nearest_cut(group, part(tiles, r).end)};
  }
  /// Of what lies in `each` (bytes or elements) a tile: where every rank's part begins, and the end.
  std::vector<i64> parts(const Group& group, i64 each) const {
    std::vector<i64> begins;
    for (int r = 0; r < ranks; ++r) begins.push_back(each * part(group, r).begin);
    begins.push_back(each * whole(group).count());
    return begins;
  }
  TileRange own(const Group& group) const { return part(group, rank); }
  /// Of the optimizer state: what this rank holds and steps.
  TileRange stepped(const Group& group) const { return splits_state() ? own(group) : whole(group); }
  bool operator==(const Sharding&) const = default;
};

}  // namespace spillway::parallel
