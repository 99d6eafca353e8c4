// Defines PartTable, a table of the parts of many tiles (of 16,384 elements) that is passed to a GPU kernel as an
// argument. In the table each thread finds the scalars of its elements. If the parts do not fit into one table,
// the work is split into several launches. A thread updates elements e, e + 16, e + 32 and e + 48 of a row of 64,
// which share a Philox counter; a thread block updates 16 rows. Only *_cuda.cu files include this header.
#pragma once
#include <algorithm>
#include <vector>

#include "optim/adamw_tile_paths.h"

namespace spillway::optim {

constexpr int kTileThreads = 256, kEach = 4;
constexpr i64 kBlockElems = kTileThreads * kEach;
static_assert(kTileElems % kBlockElems == 0 && kBlockElems % kMomentBlockElems == 0);
// The limits of a part table for one launch. The elements of a thread block belong to at most 16 segments, each with different scalars, and
// to the gaps between the segments.
constexpr int kMostParts = 128, kMostScalars = 17;
static_assert(kMostParts > 2 * kBlockElems / 64 && kMostScalars > kBlockElems / 64);

/// The parts of one launch. The member `end` of a part counts elements from the begin of the first tile.
template <class T>
struct PartTable {
  struct Part {
    i64 end;
    int scalars;  // an index into the array of scalars of this table
  };
  int parts = 0;
  Part part[kMostParts];
  Scalars<T> scalars[kMostScalars];

  __device__ const Scalars<T>& of(i64 element) const {
    int low = 0, high = parts - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (part[middle].end <= element) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return scalars[part[low].scalars];
  }
};

/// Splits `elems` elements into consecutive ranges of whole thread blocks, each as long as one table can describe. Calls
/// launch(begin, blocks, table) for each range: `begin` is its first element, `blocks` its number of thread blocks.
template <class T, class Launch>
void for_part_tables(i64 elems, std::span<const TilePart> parts, const Launch& launch) {
  size_t next = 0;
  for (i64 begin = 0; begin < elems;) {
    std::vector<const Scalars<double>*> known;
    const auto index_of = [&](const Scalars<double>* scalars) { return std::find(known.begin(), known.end(), scalars) - known.begin(); };
    i64 end = begin;
    size_t last = next;
    while (end < elems) {
      size_t of_block = last;
      const size_t known_before = known.size();
      const auto learn = [&] {
        if (index_of(parts[of_block].scalars) == std::ssize(known)) known.push_back(parts[of_block].scalars);
      };
      for (learn(); parts[of_block].end < end + kBlockElems; learn()) ++of_block;
      if (of_block - next >= kMostParts || known.size() > kMostScalars) {
        known.resize(known_before);
        break;
      }
      last = of_block, end += kBlockElems;
    }
    PartTable<T> table;
    for (size_t p = next; p <= last; ++p) table.part[table.parts++] = {parts[p].end, static_cast<int>(index_of(parts[p].scalars))};
    for (size_t s = 0; s < known.size(); ++s) table.scalars[s] = known[s] ? rounded<T>(*known[s]) : kGapScalars<T>;
    launch(begin, (end - begin) / kBlockElems, table);
    begin = end;
    next = parts[last].end == end ? last + 1 : last;
  }
}

}  // namespace spillway::optim
