// Defines KeyValueCache, the cache of text generation. It keeps the keys and values of all previous positions of each sequence, block by
// block, so that attention need not recompute them, and the states of recurrent layers after the last position. A block's memory is
// allocated when the block first runs, so a dry run on the meta device tells how many bytes the cache takes. Used by one thread. Shape
// letters: B batch size, T new positions, Hkv key/value heads, D width of a key's head, Dv width
// of a value's head.
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

  /// Where the cached keys and values are stored.
  enum class Lies : u8 {
    here,      // the cache lies in the memory that attention reads
    elsewhere  // the cache lies in host memory; while a block's attention runs, the block's part is copied to the stream's memory
  };
  /// Creates a cache for `rows` sequences of up to `positions` positions in the memory of `stream`, which must outlive the cache.
  KeyValueCache(Stream stream, i64 rows, i64 positions, Lies lies = Lies::here)
      : stream_(stream), rows_(rows), positions_(positions), lies_(lies) {}

  i64 positions() const { return positions_; }
  /// Sets the position at which the next tokens begin. Earlier positions are kept; this position and later ones are discarded. Throws
  /// Error(bug) if `begin` lies outside 0..positions.
  void seek(i64 begin);
  /// Appends the new keys and values of a block, k[B, T, Hkv, D] and v[B, T, Hkv, Dv]. Returns all keys and values of the block so far, the
  /// new ones included, as views [B, begin + T, Hkv, D] and [B, begin + T, Hkv, Dv]. Throws Error(bug) if they take more than `positions`
  /// positions.
  Both extend(u16 block, const Tensor& k, const Tensor& v);
  /// Returns state `number` of a block before the next positions, which is undefined if they begin at position 0: the state is then zero.
  /// Throws Error(bug) if the state kept is that of another position, because a state cannot go back.
  Tensor state(u16 block, u16 number, const Shape& shape, DType dtype);
  /// Keeps a state of the shape and dtype given to state(), after `count` new positions.
  void keep_state(u16 block, u16 number, const Tensor& state, i64 count);

 private:
  Tensor extended(const Tensor& kept, const Tensor& fresh) const;

  const Stream stream_;
  const i64 rows_, positions_;
  const Lies lies_;
  i64 begin_ = 0;
  std::map<u16, Both> blocks_;  // buffers [B, positions, Hkv, D] and [B, positions, Hkv, Dv] of each block
  struct State {
    Tensor kept;
    i64 position = 0;  // the number of positions before the state
  };
  std::map<std::pair<u16, u16>, State> states_;  // by block and number
};

/// with_cached() appends k and v to the context's cache and returns the keys
/// and values of all positions so far. Without a cache it returns k and v.
struct KeysAndValues {
  Variable k, v;
};
KeysAndValues with_cached(const Context& context, const Variable& k, const Variable& v);
/// Returns the positions, within their documents, of all keys that with_cached() returned, for the attention mask. The result is undefined
/// if each sequence is one document.
Tensor mask_positions(const Context& context);
/// Returns the positions of the new tokens within their documents. The result is undefined if each sequence is one document. Padding in
/// front of a sequence counts as documents of its own, so that recurrent layers begin anew behind it.
Tensor document_positions(const Context& context);

}  // namespace spillway::nn
