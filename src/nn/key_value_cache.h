// Keys and values of the positions that rows of text have had so far, block by block: what attention looks at again instead of computing
// it again. A block's memory is taken when it first comes, in the order in which blocks come, so that a dry run on the meta device tells
// the bytes. Used by one thread. Legend: B rows, T new positions, Hkv key/value heads, D head width.
#pragma once
#include <map>

#include "device/stream.h"
#include "nn/module.h"

namespace spillway::nn {

class KeyValueCache {
 public:
  struct Both {
    Tensor k, v;
  };

  enum class Lies : u8 {
    here,      // where attention reads it
    elsewhere  // in host memory: a block's comes into memory of the stream in force for the time of its attention, all its positions' worth
  };
  /// Of so many rows and positions, in `stream`'s memory, which outlives it.
  KeyValueCache(Stream stream, i64 rows, i64 positions, Lies lies = Lies::here)
      : stream_(stream), rows_(rows), positions_(positions), lies_(lies) {}

  i64 positions() const { return positions_; }
  /// The coming positions begin here; what lies before is kept, what lies behind forgotten. Error(bug) outside 0..positions.
  void seek(i64 begin);
  /// Takes in a block's k and v [B, T, Hkv, D]; all up to them, as views [B, begin + T, Hkv, D]. Error(bug) beyond the positions.
  Both extend(u16 block, const Tensor& k, const Tensor& v);

 private:
  Tensor extended(const Tensor& kept, const Tensor& fresh) const;

  const Stream stream_;
  const i64 rows_, positions_;
  const Lies lies_;
  i64 begin_ = 0;
  std::map<u16, Both> blocks_;  // [B, positions, Hkv, D]
};

/// Where the context has a cache: k and v after those of all positions before, as its block left them; else they themselves.
struct KeysAndValues {
  Variable k, v;
};
KeysAndValues with_cached(const Context& context, const Variable& k, const Variable& v);
/// Of all these keys in their documents, for the mask; undefined where a row is one document.
Tensor mask_positions(const Context& context);

}  // namespace spillway::nn
