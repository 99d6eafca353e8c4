// AdamW on one tile (16,384 elements) in any state format, in one pass over the bytes. The operations are those of adamw.h in their order,
// on the fp32 (f64) master weight and on moments widened to that type; then the weight and the state are rounded to their formats. The
// weight is updated with the new moments as they are before they are rounded. The update works out of place, or in place if new and old are
// one address; other overlaps are not allowed. The result is bitwise the same on every instruction set, in place or streamed, and however
// the tile is cut into parts. Pure function, thread-safe: the caller distributes tiles over threads.
#pragma once
#include <span>

#include "base/random.h"
#include "optim/adamw.h"
#include "optim/state_format.h"

namespace spillway::optim {

/// Pointers to one tile (16,384 elements) of each operand. The state format determines the sizes of the tiles in bytes.
struct TileOperands {
  const std::byte* gradient;
  const std::byte* weight;
  const std::byte* state;
  std::byte* new_weight;
  std::byte* new_state;
  // the change of each weight, which Muon and Adafactor compute beforehand (rules/muon.h); null for other rules
  const std::byte* direction = nullptr;
};

/// A part of a tile: the elements from the end of the previous part (or the tile's begin) up to `end`. The elements
/// of a part share their scalars. A part without scalars is a gap between parameters; its zeros stay zeros.
struct TilePart {
  i64 end = kTileElems;
  const Scalars<double>* scalars = nullptr;  // the scalars of the update; rounded once to fp32 if the arithmetic is fp32
};

/// The key for stochastic rounding of bf16 and int8 moments; other formats ignore it. Element e of the tensor that `key` stands for
/// uses Philox counter (t, 16 * (e / 64) + e mod 16), word (e / 16) mod 4: m is rounded with the lower half of that word, v with
/// the upper half. (Other rules round their first array as m, their second as v, and their third as m with counters above 2^63.)
struct RoundingNoise {
  RandomKey key;
  u64 t = 0;              // the number of this update among the applied ones, counted from 1
  u64 first_element = 0;  // the index of the tile's first element in the tensor; a multiple of 64
};

/// Updates one tile. Throws Error(bug) unless `parts` ascend and the last part ends at kTileElems. With
/// `streaming`, the new weight and state, which then must lie apart from the old ones, are written past the caches.
/// Their addresses must be multiples of 64 (else Error(bug)), and other threads see the data when the call returns.
void adamw_update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise,
                       Isa isa = Isa::best, bool streaming = false);

}  // namespace spillway::optim
