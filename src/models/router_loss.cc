#include "models/router_loss.h"

#include "kernels/experts/router_load.h"

namespace spillway::models {

void RouterLoss::add_layer(const ops::Routed& routed, const ops::ExpertRows& rows, const nn::Context& context) const {
  if (context.router_load_2E.defined() && !context.recomputing)
    kernels::add_router_load(routed.probabilities_NE, rows.begins, context.router_load_2E);
}

void RouterLoss::add_to(const Tensor& loss, const nn::Context& context) const {
  if (context.router_load_2E.defined()) kernels::add_router_loss(context.router_load_2E, weight(context), loss);
}

}  // namespace spillway::models
