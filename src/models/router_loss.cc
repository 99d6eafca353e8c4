#include "models/router_loss.h"

#include "kernels/experts/router_load.h"

namespace spillway::models {

Tensor RouterLoss::padded_targets(const nn::Context& context) {
  const Tensor& targets_BT = context.batch->targets_BT;
  return context.batch->padding > 0 ? targets_BT.reshape({targets_BT.elems()}) : Tensor();
}

void RouterLoss::add_layer(const ops::Routed& routed, const nn::Context& context) const {
  if (context.router_load_2E.defined() && !context.recomputing)
    kernels::add_router_load(routed.probabilities_NE, routed.experts_NK, padded_targets(context), context.router_load_2E);
}

void RouterLoss::add_to(const Tensor& loss, const nn::Context& context) const {
  if (context.router_load_2E.defined()) kernels::add_router_loss(context.router_load_2E, weight(context), loss);
}

}  // namespace spillway::models
