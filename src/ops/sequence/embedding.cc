#include "ops/sequence/embedding.h"

#include "kernels/sequence/embedding.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

Variable embedding(const Tensor& places, const Variable& table, i64 padding_row) {
  if (table.shape().rank() != 2 || places.rank() >= Shape::kMaxRank || places.dtype() != DType::int32)
    refuse("embedding", "int32 ids of at most 5 axes and a weight [V, C]", {places, table.value});
  const Tensor ids = dense(places);
  const Variable weight = dense(table);
  i64 extents[Shape::kMaxRank] = {};
  for (int i = 0; i < ids.rank(); ++i) extents[i] = ids.size(i);
  extents[ids.rank()] = weight.shape()[1];
  const Tensor out = empty(Shape(std::span<const i64>(extents, static_cast<size_t>(ids.rank()) + 1)), weight.dtype(), "embedding");
  kernels::embedding(ids, weight.value, out);
  Recorder r({weight});
  const auto kept_ids = r.save(ids);
  return r.output(out, [=](Backward& b) { kernels::embedding_gradient(b.saved(kept_ids), b.gradient(), padding_row, b.target(0)); });
}

}  // namespace spillway::ops
