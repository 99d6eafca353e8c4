// AdamW over a run of tiles with the threads of the stream in force, in memory or on staging buffers: what a Step instruction calls on each
// chunk of a bucket. Tasks are groups of tiles, their limits a function of the length alone, and the rule is elementwise, so the numbers do
// not depend on the thread count. Called by one thread at a time per stream.
#pragma once
#include <span>

#include "optim/adamw.h"

namespace spillway::optim {

/// One flat run of elements in four separate spans of one length; updated in place. Any length: the last tile may be short.
template <class T>
struct AdamWRun {
  std::span<T> weight, m, v;
  std::span<const T> gradient;
};

/// Elements [begin, end) of a run under one set of scalars: a bucket's segments differ in weight decay and learning rate.
template <class T>
struct AdamWPart {
  i64 begin = 0, end = 0;
  AdamWScalars<T> scalars;
};

/// Parts in ascending order without overlap; elements in none of them (gaps between segments) stay as they are. Throws Error(bug) on spans
/// of different lengths or parts out of order or range.
template <class T>
void adamw_update_tiles(const AdamWRun<T>& run, std::span<const AdamWPart<T>> parts, Isa isa = Isa::best);

/// The whole run under one set of scalars.
template <class T>
void adamw_update_tiles(const AdamWRun<T>& run, const AdamWScalars<T>& scalars, Isa isa = Isa::best);

}  // namespace spillway::optim
