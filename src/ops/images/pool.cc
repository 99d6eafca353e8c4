#include "ops/images/pool.h"

#include "kernels/images/pool.h"
#include "ops/dense.h"
#include "ops/layout/shape.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Window;

Shape pooled(const char* op, const Variable& x, const Window& window) {
  const Shape& in = x.shape();
  if (in.rank() != 4 || x.value.elems() == 0) refuse(op, "images x[N, C, H, W]", {x.value});
  const Pair at = kernels::positions_of(op, window, {in[2], in[3]});
  if (2 * window.padding.h > window.kernel.h || 2 * window.padding.w > window.kernel.w)
    refuse(op, "a padding of at most half the kernel", {x.value});
  return {in[0], in[1], at.h, at.w};
}

Shape adapted(const char* op, const Variable& x, Pair size) {
  const Shape& in = x.shape();
  if (in.rank() != 4 || x.value.elems() == 0 || size.h < 1 || size.w < 1)
    refuse(op, "images x[N, C, H, W] and a size of at least 1x1, not " + std::to_string(size.h) + "x" + std::to_string(size.w), {x.value});
  return {in[0], in[1], size.h, size.w};
}

// Pools one-dimensional rows as images of one row.
template <class Pool>
Variable of_rows(const char* op, const Variable& x, Pool pool) {
  const Shape& in = x.shape();
  if (in.rank() != 3) refuse(op, "rows x[N, C, L]", {x.value});
  const Variable y = pool(reshape(x, {in[0], in[1], 1, in[2]}));
  return reshape(y, {in[0], in[1], y.shape()[3]});
}

}  // namespace

Variable max_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode) {
  const Window window{.kernel = kernel, .stride = stride, .padding = padding, .ceil = ceil_mode};
  const Shape shape = pooled("max_pool2d", x, window);
  const Tensor y = empty(shape, x.dtype(), "pooled"), index = empty(shape, DType::int32, "pooling index");
  kernels::max_pool(dense(x.value), window, y, index);
  Recorder r({x});
  const auto kept = r.save(index);
  return r.output(y, [=](Backward& b) { kernels::max_pool_gradient(b.gradient(), b.saved(kept), window, b.target(0)); });
}

Variable max_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding, bool ceil_mode) {
  return of_rows("max_pool1d", x, [=](const Variable& rows) {
    return max_pool2d(rows, {1, kernel}, {1, stride}, {0, padding}, ceil_mode);
  });
}

Variable avg_pool2d(const Variable& x, Pair kernel, Pair stride, Pair padding, bool count_include_pad, bool ceil_mode) {
  const Window window{.kernel = kernel, .stride = stride, .padding = padding, .ceil = ceil_mode};
  const Tensor y = empty(pooled("avg_pool2d", x, window), x.dtype(), "pooled");
  kernels::avg_pool(dense(x.value), window, count_include_pad, y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::avg_pool_gradient(b.gradient(), window, count_include_pad, b.target(0)); });
}

Variable avg_pool1d(const Variable& x, i64 kernel, i64 stride, i64 padding, bool count_include_pad, bool ceil_mode) {
  return of_rows("avg_pool1d", x, [=](const Variable& rows) {
    return avg_pool2d(rows, {1, kernel}, {1, stride}, {0, padding}, count_include_pad, ceil_mode);
  });
}

Variable adaptive_max_pool2d(const Variable& x, Pair size) {
  const Shape shape = adapted("adaptive_max_pool2d", x, size);
  const Tensor y = empty(shape, x.dtype(), "pooled"), index = empty(shape, DType::int32, "pooling index");
  kernels::adaptive_max_pool(dense(x.value), y, index);
  Recorder r({x});
  const auto kept = r.save(index);
  return r.output(y, [=](Backward& b) { kernels::adaptive_max_pool_gradient(b.gradient(), b.saved(kept), b.target(0)); });
}

Variable adaptive_avg_pool2d(const Variable& x, Pair size) {
  const Tensor y = empty(adapted("adaptive_avg_pool2d", x, size), x.dtype(), "pooled");
  kernels::adaptive_avg_pool(dense(x.value), y);
  Recorder r({x});
  return r.output(y, [=](Backward& b) { kernels::adaptive_avg_pool_gradient(b.gradient(), b.target(0)); });
}

}  // namespace spillway::ops
