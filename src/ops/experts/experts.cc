#include "ops/experts/experts.h"

#include <algorithm>

#include "kernels/accumulate.h"
#include "kernels/experts/expert_products.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/experts/router.h"
#include "kernels/layout/pick.h"
#include "ops/dense.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/refuse.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

namespace {

Tensor workspace_or_none(i64 bytes) { return bytes > 0 ? workspace(bytes) : Tensor(); }

}  // namespace

Routed router(const Variable& in, i64 chosen, const RouterOptions& options, const RouterLoad& load) {
  if (in.shape().rank() != 2 || chosen < 1 || chosen > in.shape()[1])
    refuse("router", "logits [N, E] and a choice of 1 to E experts, not " + std::to_string(chosen), {in.value});
  const Variable logits = dense(in);
  const DType wide = wide_dtype(logits.dtype());
  const Tensor probabilities = empty(logits.shape(), wide, "router"), weights = empty({logits.shape()[0], chosen}, wide, "router"),
               experts = empty(weights.shape(), DType::int32, "router");
  kernels::router(logits.value, options, probabilities, experts, weights);
  Recorder r({logits});
  const SavedTensor kept_probabilities = r.save(probabilities), kept_experts = r.save(experts), kept_weights = r.save(weights);
  const Variable out = r.output(weights, [=](Backward& b) {
    kernels::router_gradient(b.saved(kept_probabilities), b.saved(kept_experts), b.saved(kept_weights), b.gradient(), options, load,
                             b.target(0));
  });
  return {out, experts, probabilities};
}

ExpertRows expert_rows(const Tensor& choices, i64 count) {
  const Tensor experts = dense(choices);
  const ExpertRows rows{empty({count + 1}, DType::int32, "expert rows"), empty({experts.elems()}, DType::int32, "expert rows"),
                        empty(experts.shape(), DType::int32, "expert rows")};
  const Tensor scratch = workspace_or_none(kernels::sort_by_expert_workspace_bytes(experts.elems(), count));
  kernels::sort_by_expert(experts, rows.begins, rows.choice_of_row, rows.row_of_choice_NK, scratch);
  return rows;
}

Variable to_experts(const Variable& in, const ExpertRows& rows) {
  if (in.shape().rank() != 2) refuse("to_experts", "tokens [N, C]", {in.value});
  const Variable x = dense(in);
  const Tensor y = empty({rows.choice_of_row.elems(), x.shape()[1]}, x.dtype(), "rows of experts");
  kernels::gather_rows(x.value, rows.choice_of_row, {}, y);
  Recorder r({x});
  const SavedTensor kept = r.save(rows.row_of_choice_NK);
  return r.output(y, [=](Backward& b) { kernels::sum_rows(b.gradient(), b.saved(kept), {}, b.target(0)); });
}

namespace {

// The number of the first weight among the op's inputs. Input 0 is x, and the weights of the experts follow it.
constexpr int kFirstWeight = 1;

using kernels::ExpertProduct;
using kernels::ExpertWeights;

void multiply(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& weights, const Tensor& out) {
  const Tensor scratch =
      workspace_or_none(kernels::expert_rows_workspace_bytes(product, a.size(0), weights.shape, weights.format, a.dtype()));
  kernels::multiply_expert_rows(begins, product, a, weights, out, scratch);
}

void weight_gradients(Backward& b, SavedTensor kept_x, size_t experts, const Tensor& begins) {
  const Tensor dy = b.gradient();
  std::vector<Tensor> dw;
  for (size_t e = 0; e < experts; ++e) dw.push_back(b.target_if_needed(kFirstWeight + static_cast<int>(e)));
  const auto wanted = std::ranges::find_if(dw, &Tensor::defined);
  if (wanted == dw.end()) return;
  const Tensor x = b.saved(kept_x);
  const Tensor scratch =
      workspace_or_none(kernels::expert_weight_workspace_bytes(dy.size(0), dy.size(1), x.size(1), dy.dtype(), wanted->dtype()));
  kernels::multiply_over_expert_rows(begins, dy, x, dw, scratch);
}

}  // namespace

Variable expert_linear(const Variable& in, const std::vector<Weight>& stored, const ExpertRows& rows) {
  const Variable x = dense(in);
  std::vector<Variable> inputs{x};
  ExpertWeights w;
  require(!stored.empty() && rows.begins.elems() == std::ssize(stored) + 1 && x.shape().rank() == 2 && stored[0].shape.rank() == 2,
          "[expert_linear] expected rows [M, I] and one weight [O, I] for each expert");
  w.format = stored[0].format, w.shape = stored[0].shape;
  bool fit = x.shape()[0] == rows.choice_of_row.elems() && x.shape()[1] == w.shape[1], trained = false;
  for (const Weight& one : stored) {
    fit = fit && one.shape == w.shape && one.format == w.format && one.stored.dtype() == x.dtype();
    trained = trained || one.stored.needs_gradient();
    inputs.push_back(dense(one.stored));
    w.stored.push_back(inputs.back().value);
  }
  require(fit,
          "[expert_linear] expected one row for each choice, and weights that all have the same shape [O, I] and the type of the rows");
  const Tensor y = empty({x.shape()[0], w.shape[0]}, x.dtype(), "output rows of experts");
  multiply(rows.begins, ExpertProduct::with_transpose, x.value, w, y);
  Recorder r(inputs);
  const SavedTensor kept_x = trained ? r.save(x) : SavedTensor(), kept_begins = r.save(rows.begins);
  std::vector<SavedTensor> kept_w;
  for (const Variable& one : std::span(inputs).subspan(kFirstWeight)) kept_w.push_back(x.needs_gradient() ? r.save(one) : SavedTensor());
  return r.output(y, [=, format = w.format, shape = w.shape](Backward& b) {
    const Tensor begins = b.saved(kept_begins);
    if (b.needs(0)) {
      ExpertWeights weights{{}, format, shape};
      for (const SavedTensor& one : kept_w) weights.stored.push_back(b.saved(one));
      multiply(begins, ExpertProduct::with_weight, b.gradient(), weights, b.target(0));
    }
    weight_gradients(b, kept_x, kept_w.size(), begins);
  });
}

Variable add_expert_biases(const Variable& in, const std::vector<Variable>& biases, const Tensor& experts_NK, const ExpertRows& rows) {
  require(rows.begins.elems() == std::ssize(biases) + 1 && experts_NK.elems() == rows.choice_of_row.elems() && in.shape().rank() == 2,
          "[add_expert_biases] expected rows [M, O], one bias [O] for each expert, and the choices from which the rows were made");
  const Variable x = dense(in);
  const i64 experts = std::ssize(biases), outputs = x.shape()[1];
  std::vector<Variable> inputs{x}, values;
  for (const Variable& b : biases) {
    require(b.shape() == Shape{outputs} && b.dtype() == x.dtype(),
            "[add_expert_biases] expected biases that all have the shape [O] and the type of the rows");
    inputs.push_back(b);
    values.emplace_back(b.value);  // the parts of the forward pass are not recorded
  }
  const Tensor expert_of_choice = dense(experts_NK).reshape({experts_NK.elems()});
  const Variable all_EO = reshape(concat(values, 0), {experts, outputs});
  const Variable by_choice = index_select(all_EO, 0, expert_of_choice);
  const Tensor y = add(Variable(x.value), index_select(by_choice, 0, rows.choice_of_row)).value;
  Recorder r(inputs);
  const SavedTensor kept_rows = r.save(rows.row_of_choice_NK), kept_experts = r.save(expert_of_choice);
  return r.output(y, [=](Backward& b) {
    if (b.needs(0)) b.pass(0, b.gradient());
    std::vector<Tensor> to;
    for (i64 e = 0; e < experts; ++e) to.push_back(b.target_if_needed(1 + static_cast<int>(e)));
    if (std::ranges::none_of(to, &Tensor::defined)) return;
    // The gradients of the biases are sums over choices in the order of tokens, in the wide dtype.
    const Tensor dy = b.gradient(), row_of_choice = b.saved(kept_rows), sums = zeros({experts, outputs}, wide_dtype(dy.dtype()), "sums");
    const Tensor dy_by_choice = empty(dy.shape(), dy.dtype(), "gradient");
    const kernels::Picks all = kernels::picks_of_all(dy.size(0));
    kernels::gather(dy, kernels::axis_of(dy.shape(), 0), row_of_choice.reshape({dy.size(0)}), all, dy_by_choice);
    kernels::scatter_add(dy_by_choice, kernels::axis_of(sums.shape(), 0), b.saved(kept_experts), all, sums);
    for (i64 e = 0; e < experts; ++e) {
      if (to[static_cast<size_t>(e)].defined()) kernels::copy(sums.slice(0, e, e + 1).reshape({outputs}), to[static_cast<size_t>(e)]);
    }
  });
}

Variable from_experts(const Variable& in, const Variable& shares, const ExpertRows& rows) {
  if (in.shape().rank() != 2 || !(shares.shape() == rows.row_of_choice_NK.shape()))
    refuse("from_experts", "rows [M, C] and one weight for each choice", {in.value, shares.value});
  const Variable x = dense(in), weights = dense(shares);
  const Tensor y = empty({weights.shape()[0], x.shape()[1]}, x.dtype(), "sum over experts");
  kernels::sum_rows(x.value, rows.row_of_choice_NK, weights.value, y);
  Recorder r({x, weights});
  const SavedTensor kept_x = weights.needs_gradient() ? r.save(x) : SavedTensor(),
                    kept_weights = x.needs_gradient() ? r.save(weights) : SavedTensor(),
                    kept_choices = x.needs_gradient() ? r.save(rows.choice_of_row) : SavedTensor(),
                    kept_rows = weights.needs_gradient() ? r.save(rows.row_of_choice_NK) : SavedTensor();
  return r.output(y, [=](Backward& b) {
    if (b.needs(0)) kernels::gather_rows(b.gradient(), b.saved(kept_choices), b.saved(kept_weights), b.target(0));
    if (b.needs(1)) kernels::row_products(b.gradient(), b.saved(kept_x), b.saved(kept_rows), b.target(1));
  });
}

}  // namespace spillway::ops
