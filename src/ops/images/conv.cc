#include "ops/images/conv.h"

#include "kernels/images/conv.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;
using kernels::ConvShape;
using kernels::Window;

// Throws Error(bug) if the inputs do not match. `image` and `kernel` name the axes in the message, as "H, W" and "kh, kw".
void check(const char* op, const Variable& x, const Variable& w, const Variable& bias, i64 groups, bool transposed, const char* image,
           const char* kernel) {
  const int rank = x.shape().rank(), wanted = image == std::string("L") ? 3 : 4;
  bool fits = rank == wanted && w.shape().rank() == wanted && groups >= 1 && x.value.elems() > 0 && w.value.elems() > 0;
  if (fits) {
    const i64 inputs = transposed ? w.shape()[0] : w.shape()[1] * groups, outputs = transposed ? w.shape()[1] * groups : w.shape()[0];
    fits = inputs == x.shape()[1] && inputs % groups == 0 && outputs % groups == 0 && w.dtype() == x.dtype();
    fits = fits && (!bias.value.defined() || (bias.shape() == Shape{outputs} && bias.dtype() == x.dtype()));
  }
  if (fits) return;
  const std::string by = " / " + std::to_string(groups) + ", ";
  refuse(op,
         std::string("x[N, C, ") + image + "], w[" + (transposed ? "C, O" : "O, C") + by + kernel +
             "] and bias[O] (or none) of the same dtype",
         {x.value, w.value, bias.value});
}

// Convolves images, or one-dimensional rows as images of one row, and returns y of shape `shape`.
Variable convolved(const ConvShape& s, const Shape& shape, const Variable& in, const Variable& weight, const Variable& added,
                   const char* op = __builtin_FUNCTION()) {
  const Variable x = dense(in), w = dense(weight), bias = dense(added);
  const Tensor y = empty(shape, x.dtype(), "convolution");
  kernels::conv2d(s, x.value, w.value, bias.value, y, workspace(kernels::conv2d_workspace_bytes(s, x.dtype())));
  Recorder r({x, w, bias}, op);
  const SavedTensor kept_x = w.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    const Tensor& dy = b.gradient();
    if (b.needs(0)) {
      const i64 bytes = kernels::conv2d_input_gradient_workspace_bytes(s, dy.dtype());
      kernels::conv2d_input_gradient(s, dy, b.saved(kept_w), {}, b.target(0), workspace(bytes));
    }
    if (b.needs(1)) {
      const i64 bytes = kernels::conv2d_weight_gradient_workspace_bytes(s, dy.dtype());
      kernels::conv2d_weight_gradient(s, b.saved(kept_x), dy, b.target(1), workspace(bytes));
    }
    if (b.needs(2)) kernels::sum_channels(dy, b.target(2));
  });
}

// Computes the transposed convolution y of shape `shape`. `s` describes the convolution that maps y to x.
Variable transposed(const ConvShape& s, const Shape& shape, const Variable& in, const Variable& weight, const Variable& added,
                    const char* op = __builtin_FUNCTION()) {
  const Variable x = dense(in), w = dense(weight), bias = dense(added);
  const Tensor y = empty(shape, x.dtype(), "transposed convolution");
  const i64 y_bytes = kernels::conv2d_input_gradient_workspace_bytes(s, x.dtype());
  kernels::conv2d_input_gradient(s, x.value, w.value, bias.value, y, workspace(y_bytes));
  Recorder r({x, w, bias}, op);
  const SavedTensor kept_x = w.needs_gradient() ? r.save(x) : SavedTensor(), kept_w = x.needs_gradient() ? r.save(w) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    const Tensor& dy = b.gradient();
    if (b.needs(0)) kernels::conv2d(s, dy, b.saved(kept_w), {}, b.target(0), workspace(kernels::conv2d_workspace_bytes(s, dy.dtype())));
    if (b.needs(1)) {
      const i64 bytes = kernels::conv2d_weight_gradient_workspace_bytes(s, dy.dtype());
      kernels::conv2d_weight_gradient(s, dy, b.saved(kept_x), b.target(1), workspace(bytes));
    }
    if (b.needs(2)) kernels::sum_channels(dy, b.target(2));
  });
}

// Converts a setting of a one-dimensional row to that of an image of one row.
Pair of_row(i64 columns) { return {1, columns}; }
Window window_of(const Shape& w, const ConvOptions& o) { return {{w[2], w[3]}, o.stride, o.padding, o.dilation}; }
Window window_of(const Shape& w, const Conv1dOptions& o) { return {of_row(w[2]), of_row(o.stride), {0, o.padding}, of_row(o.dilation)}; }

// Returns the convolution whose input gradient equals this transposed convolution.
ConvShape transposed_shape(const char* op, const Variable& x, const Variable& w, i64 groups, Pair extent, const Window& v, Pair beyond) {
  const auto grown = [](i64 positions, i64 kernel, i64 stride, i64 padding, i64 dilation, i64 more) {
    return (positions - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1;
  };
  const ConvShape s{x.shape()[0],
                    w.shape()[1] * groups,
                    w.shape()[0],
                    groups,
                    {grown(extent.h, v.kernel.h, v.stride.h, v.padding.h, v.dilation.h, beyond.h),
                     grown(extent.w, v.kernel.w, v.stride.w, v.padding.w, v.dilation.w, beyond.w)},
                    v};
  if (beyond.h < 0 || beyond.w < 0 || beyond.h >= v.stride.h || beyond.w >= v.stride.w)
    refuse(op, "an output padding of at least 0 and below the stride", {x.value, w.value});
  if (s.extent.h < 1 || s.extent.w < 1) refuse(op, "a padding that leaves at least one element of the result", {x.value, w.value});
  static_cast<void>(kernels::positions_of(op, v, s.extent));
  return s;
}

}  // namespace

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  check("conv2d", x, w, bias, options.groups, false, "H, W", "kh, kw");
  const Shape& in = x.shape();
  const ConvShape s{in[0], in[1], w.shape()[0], options.groups, {in[2], in[3]}, window_of(w.shape(), options)};
  const Pair at = kernels::positions_of("conv2d", s.window, s.extent);
  return convolved(s, {s.images, s.outputs, at.h, at.w}, x, w, bias);
}

Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const Conv1dOptions& options) {
  check("conv1d", x, w, bias, options.groups, false, "L", "k");
  const Shape& in = x.shape();
  const ConvShape s{in[0], in[1], w.shape()[0], options.groups, of_row(in[2]), window_of(w.shape(), options)};
  return convolved(s, {s.images, s.outputs, kernels::positions_of("conv1d", s.window, s.extent).w}, x, w, bias);
}

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias, const ConvTransposeOptions& options) {
  check("conv_transpose2d", x, w, bias, options.groups, true, "H, W", "kh, kw");
  const Window window = window_of(w.shape(), options);
  const ConvShape s =
      transposed_shape("conv_transpose2d", x, w, options.groups, {x.shape()[2], x.shape()[3]}, window, options.output_padding);
  return transposed(s, {s.images, s.inputs, s.extent.h, s.extent.w}, x, w, bias);
}

Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias, const ConvTranspose1dOptions& options) {
  check("conv_transpose1d", x, w, bias, options.groups, true, "L", "k");
  const Window window = window_of(w.shape(), options);
  const ConvShape s = transposed_shape("conv_transpose1d", x, w, options.groups, of_row(x.shape()[2]), window, {0, options.output_padding});
  return transposed(s, {s.images, s.inputs, s.extent.w}, x, w, bias);
}

}  // namespace spillway::ops
