// AdamW on one tile in any state format, in one pass over the bytes: the operations of adamw.h in their order, on the fp32 (f64) master and
// on widened moments, then the weight and the state rounded to their formats. The weight moves by the unrounded new moments. Out of place,
// or in place where new and old are the same address; other overlaps are not allowed. The same bits on every instruction set, in place or
// not, streamed or not, and however the tile is cut into parts. Pure function, thread-safe: the caller spreads tiles over threads.
#pragma once
#include <span>

#include "base/random.h"
#include "optim/adamw.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// One tile each, sizes by the format.
struct TileOperands {
  const std::byte* gradient;
  const std::byte* weight;
  const std::byte* state;
  std::byte* new_weight;
  std::byte* new_state;
  const std::byte* direction = nullptr;  // of a rule of matrices: what the weight moves along (rules/muon.h)
};

/// Elements from the end of the part before (the tile's begin) up to `end`. Without scalars: a gap, whose zeros stay zeros.
struct TilePart {
  i64 end = kTileElems;
  const Scalars<double>* scalars = nullptr;  // fp32 arithmetic rounds each of them once
};

/// Keys the stochastic rounding of bf16 and int8 moments; unused otherwise. Element e of the tensor that `key` stands for draws from Philox
/// counter (t, 16 * (e / 64) + e mod 16), word (e / 16) mod 4: m from its lower half, v from its upper. (Other rules: a first array as m, a
/// second as v, a third as m from the counters above 2^63.)
struct RoundingNoise {
  RandomKey key;
  u64 t = 0;              // number of the applied update
  u64 first_element = 0;  // of the tile, a multiple of 64
};

/// `parts` ascend and the last ends at kTileElems, else Error(bug). `streaming`: new weight and state go past the caches (into another
/// slot; their addresses must then be multiples of 64, else Error(bug)) and are visible to other threads on return.
void adamw_update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise,
                       Isa isa = Isa::best, bool streaming = false);

}  // namespace spillway::optim
