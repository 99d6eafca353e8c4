#include "ops/experts/experts.h"

#include "kernels/experts/expert_products.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/experts/router.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

Routed router(const Variable& in, i64 chosen, bool normalised, const RouterLoad& load) {
  if (in.shape().rank() != 2 || chosen < 1 || chosen > in.shape()[1])
    refuse("router", "logits [N, E] and a choice of 1 to E experts, not " + std::to_string(chosen), {in.value});
  const Variable logits = dense(in);
  const DType wide = wide_dtype(logits.dtype());
  const Tensor probabilities = empty(logits.shape(), wide, "router"), weights = empty({logits.shape()[0], chosen}, wide, "router"),
               experts = empty(weights.shape(), DType::int32, "router");
  kernels::router(logits.value, normalised, probabilities, experts, weights);
  Recorder r({logits});
  const SavedTensor kept_probabilities = r.save(probabilities), kept_experts = r.save(experts), kept_weights = r.save(weights);
  const Variable out = r.output(weights, [=](Backward& b) {
    kernels::router_gradient(b.saved(kept_probabilities), b.saved(kept_experts), b.saved(kept_weights), b.gradient(), normalised, load,
                             b.target(0));
  });
  return {out, experts, probabilities};
}

ExpertRows expert_rows(const Tensor& choices, i64 count) {
  const Tensor experts = dense(choices);
  const ExpertRows rows{empty({count + 1}, DType::int32, "expert rows"), empty({experts.elems()}, DType::int32, "expert rows"),
                        empty(experts.shape(), DType::int32, "expert rows")};
  kernels::sort_by_expert(experts, rows.begins, rows.choice_of_row, rows.row_of_choice_NK);
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

Tensor workspace_or_none(i64 bytes) { return bytes > 0 ? workspace(bytes) : Tensor(); }

// The number of the first weight among the op's inputs. Input 0 is x, and the weights of the experts follow it.
constexpr int kFirstWeight = 1;

// Returns whether the expert has no rows, so that its weight need not be dequantized.
// Returns false if `begins` is on a GPU, because reading it would wait for the GPU.
bool has_no_rows(const Tensor& begins, size_t expert) {
  if (begins.device().is_meta() || begins.device().is_cuda()) return false;
  const i32* begin = begins.data<i32>() + expert;
  return begin[0] == begin[1];
}

void input_gradient(Backward& b, const std::vector<SavedTensor>& weights, kernels::WeightFormat format, const Shape& shape,
                    const Tensor& begins) {
  const Tensor dy = b.gradient(), dx = b.target(0);
  const Tensor scratch = workspace_or_none(kernels::expert_rows_workspace_bytes(dy.size(0), dx.size(1), dy.size(1), dy.dtype()));
  for (size_t e = 0; e < weights.size(); ++e) {
    if (has_no_rows(begins, e)) continue;
    kernels::multiply_expert_rows(begins, static_cast<i64>(e), dy, values_of(b.saved(weights[e]), format, shape), dx, scratch);
  }
}

void weight_gradients(Backward& b, SavedTensor kept_x, size_t experts, const Tensor& begins) {
  const Tensor dy = b.gradient();
  for (size_t e = 0; e < experts; ++e) {
    const int input = kFirstWeight + static_cast<int>(e);
    if (!b.needs(input)) continue;
    const Tensor x = b.saved(kept_x), dw = b.target(input);
    const Tensor scratch =
        workspace_or_none(kernels::expert_weight_workspace_bytes(dy.size(0), dy.size(1), x.size(1), dy.dtype(), dw.dtype()));
    kernels::multiply_over_expert_rows(begins, static_cast<i64>(e), dy, x, dw, scratch);
  }
}

}  // namespace

Variable expert_linear(const Variable& in, const std::vector<Weight>& stored, const ExpertRows& rows) {
  const Variable x = dense(in);
  std::vector<Weight> w;
  for (const Weight& one : stored) w.push_back(dense(one));
  require(!w.empty() && rows.begins.elems() == static_cast<i64>(w.size()) + 1 && x.shape().rank() == 2 && w[0].shape.rank() == 2,
          "[expert_linear] expected rows [M, I] and one weight [O, I] for each expert");
  bool fit = true, trained = false;
  for (const Weight& one : w) {
    fit = fit && one.shape == w[0].shape && one.format == w[0].format && one.stored.dtype() == x.dtype() && one.shape[1] == x.shape()[1];
    trained = trained || one.stored.needs_gradient();
  }
  require(fit && x.shape()[0] == rows.choice_of_row.elems(),
          "[expert_linear] expected one row for each choice, and weights that all have the same shape [O, I] and the type of the rows");
  const i64 M = x.shape()[0], I = x.shape()[1], O = w[0].shape[0];
  const Tensor y = empty({M, O}, x.dtype(), "output rows of experts");
  {
    const Tensor scratch = workspace_or_none(kernels::expert_rows_workspace_bytes(M, O, I, x.dtype()));
    for (size_t e = 0; e < w.size(); ++e) {
      if (has_no_rows(rows.begins, e)) continue;
      const Tensor values = values_of(w[e].stored.value, w[e].format, w[e].shape);
      kernels::multiply_expert_rows(rows.begins, static_cast<i64>(e), x.value, values.transpose(0, 1), y, scratch);
    }
  }
  std::vector<Variable> inputs{x};
  for (const Weight& one : w) inputs.push_back(one.stored);
  Recorder r(inputs);
  const SavedTensor kept_x = trained ? r.save(x) : SavedTensor(), kept_begins = r.save(rows.begins);
  std::vector<SavedTensor> kept_w;
  for (const Variable& one : std::span(inputs).subspan(kFirstWeight)) kept_w.push_back(x.needs_gradient() ? r.save(one) : SavedTensor());
  return r.output(y, [=, format = w[0].format, shape = w[0].shape](Backward& b) {
    if (b.needs(0)) input_gradient(b, kept_w, format, shape, b.saved(kept_begins));
    weight_gradients(b, kept_x, kept_w.size(), b.saved(kept_begins));
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
