#include "nn/key_value_cache.h"

#include "base/error.h"
#include "device/transfer.h"
#include "kernels/layout/layout.h"

namespace spillway::nn {

namespace {

// Copies positions [begin, end) of each sequence of `from` to `to`, on the queue of the current stream.
void pass(const Tensor& from, const Tensor& to, i64 begin, i64 end) {
  if (Stream::current().is_meta()) return;
  const i64 position_bytes = from.size(2) * from.size(3) * size_of(from.dtype());
  for (i64 row = 0; row < from.size(0); ++row) {
    const i64 at = (row * from.size(1) + begin) * position_bytes;
    put_transfer(to.raw() + at, from.raw() + at, (end - begin) * position_bytes);
  }
}

}  // namespace

void KeyValueCache::seek(i64 begin) {
  require(begin >= 0 && begin <= positions_, "[key/value cache] expected a start position from 0 to the cache's number of positions");
  begin_ = begin;
}

KeyValueCache::Both KeyValueCache::extend(u16 block, const Tensor& k, const Tensor& v) {
  const i64 end = begin_ + k.size(1);
  require(
      k.size(0) == rows_ && v.size(0) == rows_ && k.size(1) == v.size(1) && k.size(2) == v.size(2) && end <= positions_,
      "[key/value cache] expected as many rows as the cache has, as many values as keys, and no more positions than fit into the cache");
  Both& kept = blocks_[block];
  if (!kept.k.defined()) {
    const StreamScope scope(stream_);
    const auto room = [&](const Tensor& of, const char* name) {
      return empty({rows_, positions_, of.size(2), of.size(3)}, of.dtype(), name);
    };
    kept = {room(k, "keys"), room(v, "values")};
  }
  return {extended(kept.k, k), extended(kept.v, v)};
}

Tensor KeyValueCache::extended(const Tensor& kept, const Tensor& fresh) const {
  const i64 end = begin_ + fresh.size(1);
  const Tensor read = lies_ == Lies::here ? kept : empty(kept.shape(), kept.dtype(), "copy of cached keys or values");
  if (lies_ == Lies::elsewhere) pass(kept, read, 0, begin_);
  kernels::copy_view(fresh, read.slice(1, begin_, end));
  if (lies_ == Lies::elsewhere) pass(read, kept, begin_, end);
  return read.slice(1, 0, end);
}

Tensor KeyValueCache::state(u16 block, u16 number, const Shape& shape, DType dtype) {
  State& state = states_[{block, number}];
  if (!state.kept.defined()) {
    const StreamScope scope(stream_);
    state.kept = empty(shape, dtype, "recurrent state");
  }
  if (begin_ == 0) return {};
  require(state.position == begin_ || Stream::current().is_meta(),
          "[key/value cache] expected positions that follow those of the recurrent state, or that begin at 0");
  if (lies_ == Lies::here) return state.kept;
  const Tensor copy = empty(shape, dtype, "copy of a recurrent state");
  if (!Stream::current().is_meta()) put_transfer(copy.raw(), state.kept.raw(), copy.bytes());
  return copy;
}

void KeyValueCache::keep_state(u16 block, u16 number, const Tensor& fresh, i64 count) {
  State& state = states_.at({block, number});
  state.position = begin_ + count;
  if (lies_ == Lies::here) return kernels::copy_view(fresh, state.kept);
  if (!Stream::current().is_meta()) put_transfer(state.kept.raw(), fresh.raw(), fresh.bytes());
}

KeysAndValues with_cached(const Context& context, const Variable& k, const Variable& v) {
  if (!context.cache) return {k, v};
  const auto all = context.cache->extend(context.block, k.value, v.value);
  return {Variable(all.k), Variable(all.v)};
}

Tensor mask_positions(const Context& context) {
  if (!context.batch->packed) return {};
  return context.cache ? context.batch->key_positions_BT : context.batch->positions_BT;
}

Tensor document_positions(const Context& context) { return context.batch->packed ? context.batch->positions_BT : Tensor(); }

}  // namespace spillway::nn
