#include "ops/embedding.h"

#include "base/error.h"
#include "kernels/embedding.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

Variable embedding(const Tensor& ids, const Variable& weight) {
  require(weight.shape().rank() == 2 && ids.rank() < Shape::kMaxRank, "[embedding] expected a weight [V, C] and ids of rank 5 at most");
  i64 extents[Shape::kMaxRank] = {};
  for (int i = 0; i < ids.rank(); ++i) extents[i] = ids.size(i);
  extents[ids.rank()] = weight.shape()[1];
  const Tensor out = empty(Shape(std::span<const i64>(extents, static_cast<size_t>(ids.rank()) + 1)), weight.dtype(), "embedding");
  kernels::embedding(ids, weight.value, out);
  Recorder r({weight});
  const auto kept_ids = r.save(ids);
  return r.output(out, [=](Backward& b) { kernels::embedding_gradient(b.saved(kept_ids), b.gradient(), b.target(0)); });
}

}  // namespace spillway::ops
