#include "ops/sequence/short_conv.h"

#include "kernels/sequence/short_conv.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

Variable short_conv(const Variable& input, const Variable& filters, const Variable& offsets, const ShortConvOptions& options) {
  const Variable x = dense(input), w = dense(filters), bias = offsets.value.defined() ? dense(offsets) : Variable();
  const Shape& of_w = w.shape();
  const i64 taps = of_w.rank() > 1 ? of_w[of_w.rank() - 1] : 0;
  const bool fits = x.shape().rank() == 3 && (of_w.rank() == 2 || (of_w.rank() == 3 && of_w[1] == 1)) && of_w[0] == x.shape()[2] &&
                    taps >= 1 && taps <= kernels::kMaxConvTaps && (!bias.value.defined() || bias.shape() == Shape{x.shape()[2]});
  if (!fits) refuse("short_conv", "x[B, T, C], w[C, K] with K from 1 to 8, and bias[C]", {x.value, w.value, bias.value});
  const Shape filter{x.shape()[2], taps};
  const Tensor positions = dense(options.positions_BT);
  const Tensor y = empty(x.shape(), x.dtype(), "short convolution");
  Recorder r({x, w, bias});
  if (r.recording() && (options.first_inputs.defined() || options.last_inputs.defined()))
    refuse("short_conv", "no earlier inputs when gradients are recorded", {options.first_inputs, options.last_inputs});
  kernels::short_conv({x.value, w.value.reshape(filter), bias.value}, {options.silu, positions}, options.first_inputs, y,
                      options.last_inputs);
  const auto kept_x = r.save(x), kept_w = r.save(w);
  const bool biased = bias.value.defined(), packed = positions.defined(), silu = options.silu;
  const SavedTensor kept_bias = biased ? r.save(bias) : SavedTensor(), kept_positions = packed ? r.save(positions) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    const Tensor dw = b.target_if_needed(1);
    kernels::short_conv_gradient(
        {b.saved(kept_x), b.saved(kept_w).reshape(filter), biased ? b.saved(kept_bias) : Tensor()},
        {silu, packed ? b.saved(kept_positions) : Tensor()}, b.gradient(),
        {b.target_if_needed(0), dw.defined() ? dw.reshape(filter) : dw, biased ? b.target_if_needed(2) : Tensor()});
  });
}

}  // namespace spillway::ops
