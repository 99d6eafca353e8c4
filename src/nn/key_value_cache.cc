#include "nn/key_value_cache.h"

#include "base/error.h"
#include "kernels/layout.h"

namespace spillway::nn {

void KeyValueCache::seek(i64 begin) {
  require(begin >= 0 && begin <= positions_, "[key/value cache] expected to go on within its positions");
  begin_ = begin;
}

KeyValueCache::Both KeyValueCache::extend(u16 block, const Tensor& k, const Tensor& v) {
  const i64 end = begin_ + k.size(1);
  require(k.size(0) == rows_ && k.shape() == v.shape() && end <= positions_, "[key/value cache] expected its rows, within its positions");
  Both& kept = blocks_[block];
  if (!kept.k.defined()) {
    const StreamScope scope(stream_);
    const Shape shape{rows_, positions_, k.size(2), k.size(3)};
    kept = {empty(shape, k.dtype(), "keys"), empty(shape, v.dtype(), "values")};
  }
  kernels::copy_view(k, kept.k.slice(1, begin_, end));
  kernels::copy_view(v, kept.v.slice(1, begin_, end));
  return {kept.k.slice(1, 0, end), kept.v.slice(1, 0, end)};
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

}  // namespace spillway::nn
