#include "ops/pool.h"

#include "kernels/pool.h"
#include "ops/dense.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Window;

Shape pooled(const char* op, const Shape& x, const Window& window) {
  require(x.rank() == 4 && x.elems() > 0, "[pool] expected x[N, C, H, W]");
  const Pair at = kernels::positions_of(op, window, {x[2], x[3]});
  return {x[0], x[1], at.h, at.w};
}

}  // namespace

Variable max_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding) {
  const Window window{kernel, stride, padding};
  const Shape shape = pooled("max_pool2d", x.shape(), window);
  const Tensor y = empty(shape, x.dtype(), "pooled"), index = empty(shape, DType::int32, "pooling index");
  kernels::max_pool(dense(x.value), window, y, index);
  Recorder r({x});
  const auto kept = r.save(index);
  return r.output(y, [=](Backward& b) { kernels::max_pool_gradient(b.gradient(), b.saved(kept), window, b.target(0)); });
}

Variable avg_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding) {
  const Window window{kernel, stride, padding};
  const Tensor y = empty(pooled("avg_pool2d", x.shape(), window), x.dtype(), "pooled");
  kernels::avg_pool(dense(x.value), window, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::avg_pool_gradient(b.gradient(), window, b.target(0)); });
}

Variable adaptive_avg_pool2d(const Variable& x, Pair size) {
  require(x.shape().rank() == 4 && x.value.elems() > 0 && size.h >= 1 && size.w >= 1,
          "[adaptive_avg_pool2d] expected x[N, C, H, W] and a size of at least 1x1");
  const Tensor y = empty({x.shape()[0], x.shape()[1], size.h, size.w}, x.dtype(), "pooled");
  kernels::adaptive_avg_pool(dense(x.value), y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::adaptive_avg_pool_gradient(b.gradient(), b.target(0)); });
}

}  // namespace spillway::ops
