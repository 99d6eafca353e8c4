#include "ops/layout/index.h"

#include "ops/dense.h"
#include "ops/layout/scatter.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using kernels::Axis;
using kernels::Picks;

Variable pick(const Variable& in, int at, const Tensor& places, const Picks& picks) {
  const Variable x = dense(in);
  const Axis axis = kernels::axis_of(x.shape(), at);
  Shape shape = x.shape();
  shape.set(at, picks.count);
  const Tensor index = dense(places), out = empty(shape, x.dtype(), "picked");
  kernels::gather(x.value, axis, index, picks, out);
  Recorder r({x});
  const auto kept = r.save(index);
  return r.output(out, [=, whole = x.shape()](Backward& b) { b.pass(0, scattered(b.gradient(), axis, b.saved(kept), picks, whole)); });
}

// Returns `axis` counted from the front. Throws Error(bug) if the index does not have x's extents on the other axes.
int checked_axis(const char* op, const Tensor& x, int axis, const Tensor& index) {
  const int at = axis_from_front(op, x, axis);
  bool fits = index.dtype() == DType::int32 && index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == at || index.size(i) == x.size(i);
  if (!fits) refuse(op, "int32 indices with the shape of the tensor, except along axis " + std::to_string(axis), {x, index});
  return at;
}

}  // namespace

Variable index_select(const Variable& x, int axis, const Tensor& index) {
  const int at = axis_from_front("index_select", x.value, axis);
  if (index.dtype() != DType::int32 || index.rank() != 1) refuse("index_select", "int32 indices [K]", {x.value, index});
  return pick(x, at, index, kernels::picks_of_all(index.elems()));
}

Variable gather(const Variable& x, int axis, const Tensor& index) {
  const int at = checked_axis("gather", x.value, axis, index);
  return pick(x, at, index, kernels::picks_of_each(index.size(at), kernels::axis_of(x.shape(), at)));
}

Variable scatter_add(const Variable& in, int at, const Tensor& places, const Variable& added) {
  const int front = checked_axis("scatter_add", in.value, at, places);
  if (!(added.shape() == places.shape()) || added.dtype() != in.dtype())
    refuse("scatter_add", "a source with the shape of the indices and the dtype of the tensor", {in.value, places, added.value});
  const Variable x = dense(in), source = dense(added);
  const Tensor index = dense(places), sums = empty(x.shape(), wide_dtype(x.dtype()), "scattered sums");
  const Axis axis = kernels::axis_of(x.shape(), front);
  const Picks picks = kernels::picks_of_each(index.size(front), axis);
  kernels::copy(x.value, sums);
  kernels::scatter_add(source.value, axis, index, picks, sums);
  Recorder r({x, source});
  const auto kept = r.save(index);
  return r.output(rounded(sums, x.dtype()), [=, shape = index.shape()](Backward& b) {
    if (b.needs(0)) b.pass(0, b.gradient());
    if (!b.needs(1)) return;
    const Tensor gradient = empty(shape, b.gradient().dtype(), "gradient");
    kernels::gather(b.gradient(), axis, b.saved(kept), picks, gradient);
    b.pass(1, gradient);
  });
}

}  // namespace spillway::ops
