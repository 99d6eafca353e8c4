#include "ops/sequence/attention.h"

#include "kernels/sequence/attention.h"
#include "ops/dense.h"
#include "ops/layout/shape.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

kernels::AttentionMask mask_of(const AttentionOptions& o, const Tensor& sinks_H = {}) {
  return {o.scale, o.causal, o.dropout, o.key, o.first_sample, o.library, o.softcap, o.window, dense(o.positions_BT), sinks_H};
}

Tensor lse_for(const Tensor& q) { return empty({q.size(0), q.size(2), q.size(1)}, wide_dtype(q.dtype()), "attention log-sum-exp"); }

void forward(const Tensor& q, const Tensor& k, const Tensor& v, const kernels::AttentionMask& mask, const Tensor& out, const Tensor& lse) {
  kernels::attention(q, k, v, mask, out, lse, workspace(kernels::attention_workspace_bytes(q.shape(), k.shape(), q.dtype(), mask.library)));
}

// Returns the options of the forward pass with the positions that the tape saved.
AttentionOptions restored(Backward& b, AttentionOptions options, SavedTensor positions) {
  if (options.positions_BT.defined()) options.positions_BT = b.saved(positions);
  return options;
}

Tensor target_or_scratch(Backward& b, int input, const Shape& shape) {
  return b.needs(input) ? b.target(input) : empty(shape, b.gradient().dtype(), "unwanted gradient");
}

// Views the q, k and v thirds of [B, T, 3 * H * D] as tensors [B, T, H, D].
struct Thirds {
  Tensor q, k, v;
  Thirds(const Tensor& qkv, i64 heads) {
    const Tensor all = qkv.reshape({qkv.size(0), qkv.size(1), 3 * heads, qkv.size(2) / (3 * heads)});
    q = all.slice(2, 0, heads);
    k = all.slice(2, heads, 2 * heads);
    v = all.slice(2, 2 * heads, 3 * heads);
  }
};

}  // namespace

Variable attention(const Variable& queries, const Variable& keys, const Variable& values, const AttentionOptions& options,
                   const Variable& sinks_H) {
  const Shape &k_shape = keys.shape(), &v_shape = values.shape();
  const bool fit = queries.shape().rank() == 4 && k_shape.rank() == 4 && v_shape.rank() == 4 && k_shape[0] == v_shape[0] &&
                   k_shape[1] == v_shape[1] && k_shape[2] == v_shape[2] && 1 <= v_shape[3] && v_shape[3] <= k_shape[3];
  if (!fit)
    refuse("attention", "q[B, T, H, D], k[B, T, Hkv, D] and v[B, T, Hkv, Dv] with Dv <= D", {queries.value, keys.value, values.value});
  if (v_shape[3] < k_shape[3]) {
    const Variable wide = pad(values, {{0, k_shape[3] - v_shape[3]}});
    return slice(attention(queries, keys, wide, options, sinks_H), 3, 0, v_shape[3]);
  }
  // Kernels accept heads with gaps between them, as in a key/value cache.
  // Tensors that a tape saves must be contiguous, so they are copied if needed.
  const bool has_sinks = sinks_H.value.defined();
  const bool kept = queries.needs_gradient() || keys.needs_gradient() || values.needs_gradient() || sinks_H.needs_gradient();
  const auto taken = [=](const Variable& x) { return kept || x.value.stride(-1) != 1 ? dense(x) : x; };
  const Variable q = taken(queries), k = taken(keys), v = taken(values), sinks = dense(sinks_H);
  const Tensor out = empty(q.shape(), q.dtype(), "attention"), lse = lse_for(q.value);
  forward(q.value, k.value, v.value, mask_of(options, sinks.value), out, lse);
  Recorder r({q, k, v, sinks});
  const auto kept_q = r.save(q), kept_k = r.save(k), kept_v = r.save(v), kept_out = r.save(out), kept_lse = r.save(lse);
  const SavedTensor kept_positions = options.positions_BT.defined() ? r.save(dense(options.positions_BT)) : SavedTensor();
  const SavedTensor kept_sinks = has_sinks ? r.save(sinks) : SavedTensor();
  return r.output(out, [=, q_shape = q.shape(), kv_shape = k.shape()](Backward& b) {
    const Tensor y = b.saved(kept_out), lses = b.saved(kept_lse), sinks_again = has_sinks ? b.saved(kept_sinks) : Tensor();
    if (has_sinks && b.needs(3)) kernels::attention_sinks_gradient(y, lses, b.gradient(), sinks_again, b.target(3));
    if (!b.needs(0) && !b.needs(1) && !b.needs(2)) return;
    const Tensor dq = target_or_scratch(b, 0, q_shape), dk = target_or_scratch(b, 1, kv_shape), dv = target_or_scratch(b, 2, kv_shape);
    const i64 bytes = kernels::attention_gradient_workspace_bytes(q_shape, kv_shape, dq.dtype(), options.library);
    kernels::attention_gradient(b.saved(kept_q), b.saved(kept_k), b.saved(kept_v), y, lses, b.gradient(),
                                mask_of(restored(b, options, kept_positions), sinks_again), dq, dk, dv, workspace(bytes));
  });
}

Variable attention_packed(const Variable& packed, i64 heads, const AttentionOptions& options) {
  const Variable qkv = dense(packed);
  if (qkv.shape().rank() != 3 || heads < 1 || qkv.shape()[2] % (3 * heads) != 0) {
    refuse("attention_packed", "qkv[B, T, 3 * heads * D] of " + std::to_string(heads) + " heads", {qkv.value});
  }
  const Thirds in(qkv.value, heads);
  const Tensor out = empty({qkv.shape()[0], qkv.shape()[1], qkv.shape()[2] / 3}, qkv.dtype(), "attention"), lse = lse_for(in.q);
  forward(in.q, in.k, in.v, mask_of(options), out.reshape(in.q.shape()), lse);
  Recorder r({qkv});
  const auto kept_qkv = r.save(qkv), kept_out = r.save(out), kept_lse = r.save(lse);
  const SavedTensor kept_positions = options.positions_BT.defined() ? r.save(dense(options.positions_BT)) : SavedTensor();
  return r.output(out, [=](Backward& b) {
    const Thirds x(b.saved(kept_qkv), heads), dx(b.target(0), heads);
    const Shape& shape = x.q.shape();
    kernels::attention_gradient(x.q, x.k, x.v, b.saved(kept_out).reshape(shape), b.saved(kept_lse), b.gradient().reshape(shape),
                                mask_of(restored(b, options, kept_positions)), dx.q, dx.k, dx.v,
                                workspace(kernels::attention_gradient_workspace_bytes(shape, shape, dx.q.dtype(), options.library)));
  });
}

}  // namespace spillway::ops
