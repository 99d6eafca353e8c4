// Operations by their names in PyTorch, as functions and as methods of the tensor that comes first.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/axis.h"
#include "ops/conv.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/losses/class_loss.h"
#include "ops/losses/error_loss.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/pool.h"
#include "ops/products/einsum.h"
#include "ops/products/matmul.h"
#include "ops/reduce.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

using Axes = std::variant<std::monostate, int, std::vector<int>>;
using Numbers = nb::object;  // whole ones, of any array

struct Home {
  nb::module_& module;
  nb::class_<Array>& tensor;
  /// A function and a method.
  template <class F, class... Extra>
  void def(const char* name, const F& f, const Extra&... extra) const {
    module.def(name, f, nb::arg("x"), extra...);
    tensor.def(name, f, extra...);
  }
};

void unary(const Home& home, const char* name, Variable (*op)(const Variable&), const char* what) {
  home.def(
      name, [op](const Array& x) { return apply(op, x); }, what);
}

std::vector<int> list_of(const Axes& axes) {
  if (const int* one = std::get_if<int>(&axes)) return {*one};
  if (const auto* list = std::get_if<std::vector<int>>(&axes)) return *list;
  return {};
}

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::mean;
  if (name == "sum") return ops::Reduction::sum;
  if (name == "none") return ops::Reduction::none;
  throw nb::value_error(("reduction: expected mean, sum or none, got " + name).c_str());
}

// Over one axis after the other, the last one first.
Variable each_axis(const Variable& x, const Axes& axes, bool keep, Variable (*one)(const Variable&, int, bool),
                   Variable (*all)(const Variable&)) {
  std::vector<int> list = list_of(axes);
  if (list.empty()) return all(x);
  for (int& axis : list) axis = axis < 0 ? axis + x.value.rank() : axis;
  std::ranges::sort(list, std::greater<>());
  Variable y = x;
  for (const int axis : list) y = one(y, axis, keep);
  return y;
}

void bind_elementwise(const Home& home) {
  unary(home, "abs", ops::abs, "|x|");
  unary(home, "exp", ops::exp, "e^x");
  unary(home, "log", ops::log, "Natural logarithm.");
  unary(home, "sqrt", ops::sqrt, "Square root.");
  unary(home, "rsqrt", ops::rsqrt, "1 / sqrt(x)");
  unary(home, "tanh", ops::tanh, "Hyperbolic tangent.");
  unary(home, "sigmoid", ops::sigmoid, "1 / (1 + e^-x)");
  unary(home, "relu", ops::relu, "max(x, 0)");
  unary(home, "silu", ops::silu, "x sigmoid(x)");
  unary(home, "hardswish", ops::hardswish, "x (x + 3, held in [0, 6]) / 6");
  unary(home, "mish", ops::mish, "x tanh(log(1 + e^x))");
  home.def(
      "gelu",
      [](const Array& x, const std::string& approximate) {
        if (approximate != "none" && approximate != "tanh")
          throw nb::value_error(("approximate: expected none or tanh, got " + approximate).c_str());
        return apply(approximate == "tanh" ? ops::gelu_tanh : ops::gelu_erf, x);
      },
      nb::arg("approximate") = "none", "x times the normal distribution's share below x; \"tanh\" is GPT-2's.");
  home.def(
      "leaky_relu", [](const Array& x, double slope) { return apply([&](const Variable& v) { return ops::leaky_relu(v, slope); }, x); },
      nb::arg("negative_slope") = 0.01);
  home.def(
      "elu", [](const Array& x, double alpha) { return apply([&](const Variable& v) { return ops::elu(v, alpha); }, x); },
      nb::arg("alpha") = 1.0);
  home.def(
      "softplus",
      [](const Array& x, double beta, double threshold) {
        return apply([&](const Variable& v) { return ops::softplus(v, beta, threshold); }, x);
      },
      nb::arg("beta") = 1.0, nb::arg("threshold") = 20.0);
  home.def(
      "clamp",
      [](const Array& x, std::optional<double> lowest, std::optional<double> highest) {
        const double infinity = std::numeric_limits<double>::infinity();
        return apply([&](const Variable& v) { return ops::clamp(v, lowest.value_or(-infinity), highest.value_or(infinity)); }, x);
      },
      nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  home.def(
      "maximum",
      [](const Array& x, const Array& y) { return apply([](const Variable& a, const Variable& b) { return ops::maximum(a, b); }, x, y); },
      nb::arg("other"));
  home.def(
      "minimum",
      [](const Array& x, const Array& y) { return apply([](const Variable& a, const Variable& b) { return ops::minimum(a, b); }, x, y); },
      nb::arg("other"));
  home.def(
      "masked_fill",
      [](const Array& x, const Array& mask, double value) {
        return apply([&](const Variable& v, const Variable& m) { return ops::masked_fill(v, m.value, value); }, x, mask);
      },
      nb::arg("mask"), nb::arg("value"));
  home.module.def(
      "where",
      [](const Array& mask, const Array& a, const Array& b) {
        return apply([](const Variable& m, const Variable& x, const Variable& y) { return ops::where(m.value, x, y); }, mask, a, b);
      },
      nb::arg("mask"), nb::arg("a"), nb::arg("b"), "a where the mask (uint8 or bool) is not 0, else b.");
  home.def(
      "dropout",
      [](const Array& x, double p, u64 seed, i64 first_sample) {
        return apply([&](const Variable& v) { return ops::dropout(v, p, RandomKey{seed}, first_sample); }, x);
      },
      nb::arg("p"), nb::kw_only(), nb::arg("seed"), nb::arg("first_sample") = 0,
      "x[B, ...]: elements are 0 with probability p, else scaled by 1 / (1 - p); a function of the seed, of the row's number (from "
      "first_sample on) and of the place in it.");
}

void bind_reductions(const Home& home) {
  const auto axis = nb::arg("axis") = nb::none();
  const auto keep = nb::arg("keepdims") = false;
  home.def(
      "sum",
      [](const Array& x, const Axes& axes, bool kept) {
        return apply([&](const Variable& v) { return each_axis(v, axes, kept, ops::sum, ops::sum); }, x);
      },
      axis, keep, "Over one axis, some, or all.");
  home.def(
      "mean",
      [](const Array& x, const Axes& axes, bool kept) {
        return apply([&](const Variable& v) { return each_axis(v, axes, kept, ops::mean, ops::mean); }, x);
      },
      axis, keep, "Over one axis, some, or all.");
  home.def(
      "max",
      [](const Array& x, const Axes& axes, bool kept) {
        return apply([&](const Variable& v) { return ops::max(v, list_of(axes), kept); }, x);
      },
      axis, keep);
  home.def(
      "min",
      [](const Array& x, const Axes& axes, bool kept) {
        return apply([&](const Variable& v) { return ops::min(v, list_of(axes), kept); }, x);
      },
      axis, keep);
  home.def(
      "var",
      [](const Array& x, const Axes& axes, double correction, bool kept) {
        return apply([&](const Variable& v) { return ops::var(v, list_of(axes), correction, kept); }, x);
      },
      axis, nb::arg("correction") = 1.0, keep, "sum((x - mean)^2) / (n - correction)");
  home.def(
      "logsumexp",
      [](const Array& x, const Axes& axes, bool kept) {
        return apply([&](const Variable& v) { return ops::logsumexp(v, list_of(axes), kept); }, x);
      },
      axis, keep);
  home.def(
      "argmax",
      [](const Array& x, int at, bool kept) {
        return apply([&](const Variable& v) -> Variable { return ops::argmax(v.value, at, kept); }, x);
      },
      nb::arg("axis") = -1, keep, "int32: the place of the first of the largest.");
  home.def(
      "argmin",
      [](const Array& x, int at, bool kept) {
        return apply([&](const Variable& v) -> Variable { return ops::argmin(v.value, at, kept); }, x);
      },
      nb::arg("axis") = -1, keep);
  home.def(
      "softmax", [](const Array& x, int at) { return apply([&](const Variable& v) { return ops::softmax(v, at); }, x); },
      nb::arg("axis") = -1);
  home.def(
      "log_softmax", [](const Array& x, int at) { return apply([&](const Variable& v) { return ops::log_softmax(v, at); }, x); },
      nb::arg("axis") = -1);
  home.def(
      "cumsum", [](const Array& x, int at) { return apply([&](const Variable& v) { return ops::cumsum(v, at); }, x); },
      nb::arg("axis") = -1);
  home.def(
      "topk",
      [](const Array& x, i64 k, int at) {
        Tensor index;
        Array values = apply(
            [&](const Variable& v) {
              const ops::TopK best = ops::topk(v, k, at);
              index = best.index;
              return best.values;
            },
            x);
        return nb::make_tuple(values, constant(index));
      },
      nb::arg("k"), nb::arg("axis") = -1, "The k largest in order, and their places (int32).");
}

Array absent() { return {}; }

void bind_layers(const Home& home) {
  nb::module_& m = home.module;
  home.def(
      "matmul",
      [](const Array& a, const Array& b) { return apply([](const Variable& x, const Variable& y) { return ops::matmul(x, y); }, a, b); },
      nb::arg("other"), "[..., M, K] @ [..., K, N] -> [..., M, N].");
  m.def(
      "einsum",
      [](const std::string& equation, const Array& a, const Array& b) {
        return apply([&](const Variable& x, const Variable& y) { return ops::einsum(equation, x, y); }, a, b);
      },
      nb::arg("equation"), nb::arg("a"), nb::arg("b"), "Einstein's summation of two tensors: \"bij,bjk->bik\".");
  m.def(
      "linear",
      [](const Array& x, const Array& weight, const std::optional<Array>& bias) {
        return apply(
            [](const Variable& v, const Variable& w, const Variable& b) { return ops::linear(v, w, b, ops::WeightLayout::out_in); }, x,
            weight, bias.value_or(absent()));
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), "x[..., I], weight[O, I], bias[O] -> [..., O]");
  m.def(
      "embedding",
      [](const Numbers& ids, const Array& weight) {
        const Tensor numbers = whole_numbers(ids, "ids");
        return apply([&](const Variable& w) { return ops::embedding(brought_here(numbers), w); }, weight);
      },
      nb::arg("ids"), nb::arg("weight"), "ids[...], each in [0, V), weight[V, C] -> [..., C]");
  m.def(
      "layer_norm",
      [](const Array& x, const Array& weight, const Array& bias, double eps) {
        return apply([&](const Variable& v, const Variable& w, const Variable& b) { return ops::layer_norm(v, w, b, eps); }, x, weight,
                     bias);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps") = 1e-5, "Over the last axis: x[..., C], weight[C], bias[C].");
  m.def(
      "rms_norm",
      [](const Array& x, const Array& weight, double eps) {
        return apply([&](const Variable& v, const Variable& w) { return ops::rms_norm(v, w, eps); }, x, weight);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("eps") = 1e-6, "Over the last axis: x[..., C], weight[C].");
  m.def(
      "scaled_dot_product_attention",
      [](const Array& q, const Array& k, const Array& v, bool causal, std::optional<double> scale) {
        ops::AttentionOptions options;
        options.scale = scale.value_or(q.value().rank() > 0 ? 1 / std::sqrt(static_cast<double>(q.value().size(-1))) : 1);
        options.causal = causal;
        return apply([&](const Variable& a, const Variable& b, const Variable& c) { return ops::attention(a, b, c, options); }, q, k, v);
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("is_causal") = true, nb::arg("scale") = nb::none(),
      "q[B, T, H, D], k and v[B, T, Hkv, D] -> [B, T, H, D], in memory linear in T. (PyTorch's has H before T.)");
  m.def(
      "conv2d",
      [](const Array& x, const Array& weight, const std::optional<Array>& bias, i64 stride, i64 padding, i64 dilation, i64 groups) {
        ops::ConvOptions options;
        options.stride = stride, options.padding = padding, options.dilation = dilation, options.groups = groups;
        return apply([&](const Variable& v, const Variable& w, const Variable& b) { return ops::conv2d(v, w, b, options); }, x, weight,
                     bias.value_or(absent()));
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1, nb::arg("padding") = 0, nb::arg("dilation") = 1,
      nb::arg("groups") = 1, "x[N, C, H, W], weight[O, C / groups, kh, kw], bias[O] -> [N, O, Ho, Wo]");
  m.def(
      "max_pool2d",
      [](const Array& x, i64 kernel, std::optional<i64> stride, i64 padding) {
        return apply([&](const Variable& v) { return ops::max_pool2d(v, kernel, stride.value_or(kernel), padding); }, x);
      },
      nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
  m.def(
      "avg_pool2d",
      [](const Array& x, i64 kernel, std::optional<i64> stride, i64 padding) {
        return apply([&](const Variable& v) { return ops::avg_pool2d(v, kernel, stride.value_or(kernel), padding); }, x);
      },
      nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
}

void bind_losses(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](const Array& logits, const Numbers& targets, const std::string& reduction, int ignore_index, double label_smoothing) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction), options.ignored = ignore_index, options.label_smoothing = label_smoothing;
        const Tensor classes = whole_numbers(targets, "targets");
        return apply([&](const Variable& x) { return ops::cross_entropy(x, brought_here(classes), options); }, logits);
      },
      nb::arg("logits"), nb::arg("targets"), nb::arg("reduction") = "mean", nb::arg("ignore_index") = -100,
      nb::arg("label_smoothing") = 0.0,
      "Of logits[..., V] against classes[...], in nats; negative targets are not counted. A reduced loss is f64.");
  m.def(
      "nll_loss",
      [](const Array& x, const Numbers& targets, const std::string& reduction) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction);
        const Tensor classes = whole_numbers(targets, "targets");
        return apply([&](const Variable& v) { return ops::nll_loss(v, brought_here(classes), options); }, x);
      },
      nb::arg("log_probabilities"), nb::arg("targets"), nb::arg("reduction") = "mean",
      "Of log-probabilities[..., V] against classes[...].");
  const auto pair_loss = [&](const char* name, Variable (*op)(const Variable&, const Variable&, ops::Reduction)) {
    m.def(
        name,
        [op](const Array& x, const Array& target, const std::string& reduction) {
          const ops::Reduction how = reduction_of(reduction);
          return apply([&](const Variable& a, const Variable& b) { return op(a, b, how); }, x, target);
        },
        nb::arg("x"), nb::arg("target"), nb::arg("reduction") = "mean");
  };
  pair_loss("mse_loss", ops::mse_loss);
  pair_loss("l1_loss", ops::l1_loss);
  m.def(
      "huber_loss",
      [](const Array& x, const Array& target, double delta, const std::string& reduction) {
        const ops::Reduction how = reduction_of(reduction);
        return apply([&](const Variable& a, const Variable& b) { return ops::huber_loss(a, b, delta, how); }, x, target);
      },
      nb::arg("x"), nb::arg("target"), nb::arg("delta") = 1.0, nb::arg("reduction") = "mean");
  m.def(
      "bce_with_logits_loss",
      [](const Array& x, const Array& target, const std::string& reduction) {
        const ops::Reduction how = reduction_of(reduction);
        return apply([&](const Variable& a, const Variable& b) { return ops::bce_with_logits_loss(a, b.value, how); }, x, target);
      },
      nb::arg("x"), nb::arg("target"), nb::arg("reduction") = "mean");
}

}  // namespace

void bind_operations(nb::module_& module, nb::class_<Array>& tensor) {
  const Home home{module, tensor};
  bind_elementwise(home);
  bind_reductions(home);
  bind_layers(home);
  bind_losses(module);
}

}  // namespace spillway::python
