// States how a group's tiles are sharded over the data-parallel ranks, after ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models", 2020). Stage 0 shards nothing, stage 1 the optimizer state, stage 2 also the gradients, stage 3 also
// the weights. A shard is a contiguous range of whole tiles (pieces of 16,384 elements). The shards of a group differ by at most one tile,
// and the first ranks hold the larger shards. A group whose parameters are each updated as a whole (Adafactor, Muon) is sharded at
// parameter boundaries instead, so some shards may be empty. A plain value.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "offload/blob.h"
#include "parallel/layout/layout.h"

namespace spillway::parallel {

using offload::TileRange;

inline TileRange whole(const Group& group) { return {0, group.elems / kTileElems}; }

/// Returns the bucket's tiles, numbered within its group.
inline TileRange tiles_of(const Bucket& bucket) {
  const i64 begin = bucket.begin / kTileElems;
  return {begin, begin + bucket.tiles};
}

/// Returns the tiles that both ranges contain. If there are none, the result is an empty range whose begin has no meaning.
inline TileRange intersection(TileRange a, TileRange b) {
  const i64 begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Returns the tile at which the parameter boundary nearest to `tile` lies. A parameter boundary is the begin of a parameter of the
/// group, or the end of the last parameter.
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
  int rank = 0, ranks = 1;  // this data-parallel rank, and the number of data-parallel ranks

  bool splits_state() const { return ranks > 1 && stage >= 1; }
  /// Returns rank r's part of an even split of `tiles` tiles.
  TileRange part(i64 tiles, int r) const {
    const i64 each = tiles / ranks, rest = tiles % ranks;
    const i64 begin = each * r + std::min<i64>(r, rest);
    return {begin, begin + each + (r < rest)};
  }
  /// Returns rank r's shard of a group. A group whose parameters are each updated as a whole is cut at the parameter boundaries nearest
  /// to the even split.
  TileRange part(const Group& group, int r) const {
    const i64 tiles = whole(group).count();
    if (!group.by_parameter) return part(tiles, r);
    return {nearest_cut(group, part(tiles, r).begin), nearest_cut(group, part(tiles, r).end)};
  }
  /// Returns the offset of each rank's shard of the group, followed by the end of the last one, in the unit of `each`: the bytes or
  /// elements that one tile takes.
  std::vector<i64> parts(const Group& group, i64 each) const {
    std::vector<i64> begins;
    for (int r = 0; r < ranks; ++r) begins.push_back(each * part(group, r).begin);
    begins.push_back(each * whole(group).count());
    return begins;
  }
  TileRange own(const Group& group) const { return part(group, rank); }
  /// Returns the tiles that this rank updates and whose optimizer state it holds.
  TileRange stepped(const Group& group) const { return splits_state() ? own(group) : whole(group); }
  bool operator==(const Sharding&) const = default;
};

}  // namespace spillway::parallel
