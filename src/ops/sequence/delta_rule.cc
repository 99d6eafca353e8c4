#include "ops/sequence/delta_rule.h"

#include "kernels/sequence/delta_rule.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

// Views the parts of [B, T, 2 * J * K + H * V].
struct QkvParts {
  Tensor q, k, v;
  QkvParts(const Tensor& qkv, i64 of_keys)
      : q(qkv.slice(2, 0, of_keys)), k(qkv.slice(2, of_keys, 2 * of_keys)), v(qkv.slice(2, 2 * of_keys, qkv.size(2))) {}
};

}  // namespace

Variable delta_rule(const Variable& convolved, const Variable& decays, const Variable& rates, const Variable& logs, const Variable& biases,
                    const DeltaRuleOptions& options) {
  const Variable qkv = dense(convolved), a = dense(decays), b = dense(rates), a_log = dense(logs), dt_bias = dense(biases);
  const i64 heads = a_log.value.elems(), keys = options.key_heads, of_keys = keys * options.key_elems;
  const bool fits = qkv.shape().rank() == 3 && keys > 0 && options.key_elems > 0 && heads > 0 && heads % keys == 0 &&
                    qkv.shape()[2] > 2 * of_keys && (qkv.shape()[2] - 2 * of_keys) % heads == 0 &&
                    a.shape() == Shape{qkv.shape()[0], qkv.shape()[1], heads} && b.shape() == a.shape();
  if (!fits) {
    refuse("delta_rule",
           "qkv[B, T, 2 * J * K + H * V], a and b[B, T, H] and a_log[H] with J = " + std::to_string(keys) +
               " dividing H and K = " + std::to_string(options.key_elems),
           {qkv.value, a.value, b.value, a_log.value});
  }
  const Tensor positions = dense(options.positions_BT);
  const i64 values = qkv.shape()[2] - 2 * of_keys;
  const kernels::DeltaShape shape{qkv.shape()[0], qkv.shape()[1], keys, heads, options.key_elems, values / heads};
  const QkvParts in(qkv.value, of_keys);
  const Tensor o = empty({shape.B, shape.T, values}, qkv.dtype(), "delta rule");
  Recorder r({qkv, a, b, a_log, dt_bias});
  if (r.recording() && (options.first_state_BHKV.defined() || options.last_state_BHKV.defined()))
    refuse("delta_rule", "no states when gradients are recorded", {options.first_state_BHKV, options.last_state_BHKV});
  kernels::delta_rule({in.q, in.k, in.v, a.value, b.value, a_log.value, dt_bias.value}, {keys, options.normalize, positions},
                      options.first_state_BHKV, o, options.last_state_BHKV,
                      workspace(kernels::delta_rule_workspace_bytes(shape, o.dtype())));
  const auto kept_qkv = r.save(qkv), kept_a = r.save(a), kept_b = r.save(b), kept_a_log = r.save(a_log), kept_dt_bias = r.save(dt_bias);
  const SavedTensor kept_positions = positions.defined() ? r.save(positions) : SavedTensor();
  const bool packed = positions.defined(), normalize = options.normalize;
  return r.output(o, [=](Backward& back) {
    const Tensor whole = back.saved(kept_qkv), of_decays = back.saved(kept_a), of_rates = back.saved(kept_b);
    const auto target = [&](int i, const Tensor& like) {
      return back.needs(i) ? back.target(i) : empty(like.shape(), like.dtype(), "unwanted gradient");
    };
    const Tensor dwhole = target(0, whole), da = target(1, of_decays), db = target(2, of_rates);
    const QkvParts parts(whole, of_keys), dparts(dwhole, of_keys);
    kernels::delta_rule_gradient({parts.q, parts.k, parts.v, of_decays, of_rates, back.saved(kept_a_log), back.saved(kept_dt_bias)},
                                 {keys, normalize, packed ? back.saved(kept_positions) : Tensor()}, back.gradient(),
                                 {dparts.q, dparts.k, dparts.v, da, db, back.target_if_needed(3), back.target_if_needed(4)},
                                 workspace(kernels::delta_rule_gradient_workspace_bytes(shape, whole.dtype())));
  });
}

}  // namespace spillway::ops
