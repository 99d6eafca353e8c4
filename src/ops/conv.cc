#include "ops/conv.h"

#include "kernels/convolution/conv.h"
#include "ops/dense.h"
#include "ops/workspace.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;
using kernels::ConvShape;

ConvShape shape_of(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& o) {
  const Shape &images = x.shape(), &weight = w.shape();
  const bool ranks = images.rank() == 4 && weight.rank() == 4 && o.groups >= 1 && x.value.elems() > 0;
  const bool fits = ranks && weight[0] % o.groups == 0 && weight[1] * o.groups == images[1] && x.dtype() == w.dtype();
  const bool bias_fits = !bias.value.defined() || (fits && bias.shape() == Shape{weight[0]} && bias.dtype() == x.dtype());
  if (!fits || !bias_fits) {
    throw Error(ErrorCode::bug, "[conv2d] expected x[N, C, H, W], w[O, C / " + std::to_string(o.groups) +
                                    ", kh, kw] and bias[O] of one dtype, got " + to_string(images) + " and " + to_string(weight) +
                                    (bias.value.defined() ? " and " + to_string(bias.shape()) : ""));
  }
  return {
      images[0], images[1], weight[0], o.groups, Pair(images[2], images[3]), {Pair(weight[2], weight[3]), o.stride, o.padding, o.dilation}};
}

}  // namespace

Variable conv2d(const Variable& in, const Variable& weight, const Variable& added, const ConvOptions& options) {
  const ConvShape s = shape_of(in, weight, added, options);
  const Variable x = dense(in), w = dense(weight), bias = dense(added);
  const Pair at = s.positions();
  const Tensor y = empty({s.images, s.outputs, at.h, at.w}, x.dtype(), "convolution");
  kernels::conv2d(s, x.value, w.value, bias.value, y, workspace(kernels::conv2d_workspace_bytes(s, x.dtype())));
  Recorder r({x, w, bias});
  const SavedTensor kept_x = w.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    const Tensor& dy = b.gradient();
    if (b.needs(0)) {
      const i64 bytes = kernels::conv2d_input_gradient_workspace_bytes(s, dy.dtype());
      kernels::conv2d_input_gradient(s, dy, b.saved(kept_w), b.target(0), workspace(bytes));
    }
    if (b.needs(1)) {
      const i64 bytes = kernels::conv2d_weight_gradient_workspace_bytes(s, dy.dtype());
      kernels::conv2d_weight_gradient(s, b.saved(kept_x), dy, b.target(1), workspace(bytes));
    }
    if (b.needs(2)) kernels::sum_channels(dy, b.target(2));
  });
}

}  // namespace spillway::ops
