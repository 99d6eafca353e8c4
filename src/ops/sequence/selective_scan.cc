#include "ops/sequence/selective_scan.h"

#include "kernels/sequence/selective_scan.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

kernels::ScanOptions kernel_options(const SelectiveScanOptions& o, const Tensor& positions) {
  return {o.groups, o.smallest_dt, o.largest_dt, positions};
}

// Views the parts of [B, T, H * P + 2 * G * N].
struct Parts {
  Tensor x, b, c;
  Parts(const Tensor& xbc, i64 of_groups) {
    const i64 width = xbc.size(2) - 2 * of_groups;
    x = xbc.slice(2, 0, width);
    b = xbc.slice(2, width, width + of_groups);
    c = xbc.slice(2, width + of_groups, width + 2 * of_groups);
  }
};

kernels::ScanShape shape_of(const Tensor& xbc, i64 heads, const SelectiveScanOptions& o) {
  return {xbc.size(0), xbc.size(1), heads, (xbc.size(2) - 2 * o.groups * o.state) / heads, o.groups, o.state};
}

}  // namespace

Variable selective_scan(const Variable& convolved, const Variable& steps, const Variable& decays, const Variable& biases,
                        const Variable& skips, const SelectiveScanOptions& options) {
  const Variable xbc = dense(convolved), dt = dense(steps), a_log = dense(decays), dt_bias = dense(biases), d = dense(skips);
  const i64 heads = d.value.elems(), of_groups = options.groups * options.state;
  const bool fits = xbc.shape().rank() == 3 && options.groups > 0 && options.state > 0 && heads > 0 && heads % options.groups == 0 &&
                    xbc.shape()[2] > 2 * of_groups && (xbc.shape()[2] - 2 * of_groups) % heads == 0 &&
                    dt.shape() == Shape{xbc.shape()[0], xbc.shape()[1], heads};
  if (!fits) {
    refuse("selective_scan",
           "xbc[B, T, H * P + 2 * G * N], dt[B, T, H] and d[H] with G = " + std::to_string(options.groups) +
               " dividing H and N = " + std::to_string(options.state),
           {xbc.value, dt.value, d.value});
  }
  const Tensor positions = dense(options.positions_BT);
  const kernels::ScanShape shape = shape_of(xbc.value, heads, options);
  const Parts in(xbc.value, of_groups);
  const Tensor y = empty({shape.B, shape.T, shape.H * shape.P}, xbc.dtype(), "selective scan");
  Recorder r({xbc, dt, a_log, dt_bias, d});
  if (r.recording() && (options.first_state_BHNP.defined() || options.last_state_BHNP.defined()))
    refuse("selective_scan", "no states when gradients are recorded", {options.first_state_BHNP, options.last_state_BHNP});
  kernels::selective_scan({in.x, dt.value, in.b, in.c, a_log.value, dt_bias.value, d.value}, kernel_options(options, positions),
                          options.first_state_BHNP, y, options.last_state_BHNP,
                          workspace(kernels::selective_scan_workspace_bytes(shape, y.dtype())));
  const auto kept_xbc = r.save(xbc), kept_dt = r.save(dt), kept_a_log = r.save(a_log), kept_dt_bias = r.save(dt_bias), kept_d = r.save(d);
  const SavedTensor kept_positions = positions.defined() ? r.save(positions) : SavedTensor();
  const bool packed = positions.defined();
  SelectiveScanOptions kept = options;
  kept.positions_BT = kept.first_state_BHNP = kept.last_state_BHNP = {};
  return r.output(y, [=](Backward& b) {
    const Tensor whole = b.saved(kept_xbc), raw = b.saved(kept_dt);
    const Tensor dwhole = b.needs(0) ? b.target(0) : empty(whole.shape(), whole.dtype(), "unwanted gradient");
    const Tensor draw = b.needs(1) ? b.target(1) : empty(raw.shape(), raw.dtype(), "unwanted gradient");
    const Parts parts(whole, of_groups), dparts(dwhole, of_groups);
    kernels::selective_scan_gradient(
        {parts.x, raw, parts.b, parts.c, b.saved(kept_a_log), b.saved(kept_dt_bias), b.saved(kept_d)},
        kernel_options(kept, packed ? b.saved(kept_positions) : Tensor()), b.gradient(),
        {dparts.x, draw, dparts.b, dparts.c, b.target_if_needed(2), b.target_if_needed(3), b.target_if_needed(4)},
        workspace(kernels::selective_scan_gradient_workspace_bytes(shape, whole.dtype())));
  });
}

}  // namespace spillway::ops
