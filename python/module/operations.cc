// Binds the operations under their PyTorch names, as functions and as methods of their first tensor.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/elementwise/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/losses/class_loss.h"
#include "ops/losses/error_loss.h"
#include "ops/products/einsum.h"
#include "ops/products/linear.h"
#include "ops/products/matmul.h"
#include "ops/rows/axis.h"
#include "ops/rows/norm.h"
#include "ops/rows/reduce.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

using Axes = std::optional<Wholes>;
using Numbers = nb::object;  // an argument with whole numbers, from any kind of array

struct Home {
  nb::module_& module;
  nb::class_<Array>& tensor;
  /// Defines a function of the module and a method of Tensor.
  template <class F, class... Extra>
  void def(const char* name, const F& f, const Extra&... extra) const {
    module.def(name, f, nb::arg("x"), extra...);
    tensor.def(name, f, extra...);
  }
};

void unary(const Home& home, const char* name, Variable (*op)(const Variable&), const char* what) {
  home.def(
      name, [op](const Given& x) { return apply(op, x); }, what);
}

// Returns the axes counted from the front; each axis may occur once. An empty list stands for all axes.
std::vector<int> list_of(const Axes& axes, const Array& x) {
  std::vector<int> list = axes ? axes->small() : std::vector<int>();
  for (int& axis : list) axis = axis < 0 ? axis + x.value().rank() : axis;
  std::vector<int> sorted = list;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) throw WrongValue("axis: expected each axis once, got one twice");
  return list;
}

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::mean;
  if (name == "sum") return ops::Reduction::sum;
  if (name == "none") return ops::Reduction::none;
  throw WrongValue("reduction: expected mean, sum or none, got " + name);
}

// Reduces x over the axes one after the other, the last axis first.
Variable each_axis(const Variable& x, std::vector<int> list, bool keep, Variable (*one)(const Variable&, int, bool),
                   Variable (*all)(const Variable&)) {
  if (list.empty()) return all(x);
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
  unary(home, "hardswish", ops::hardswish, "x clamp(x + 3, 0, 6) / 6");
  unary(home, "mish", ops::mish, "x tanh(log(1 + e^x))");
  home.def(
      "gelu",
      [](const Given& x, const Word& approximate) {
        const std::string& how = approximate;
        if (how != "none" && how != "tanh") throw WrongValue("approximate: expected none or tanh, got " + how);
        return apply(how == "tanh" ? ops::gelu_tanh : ops::gelu_erf, x);
      },
      nb::arg("approximate") = "none", "x times the standard normal CDF of x; \"tanh\" is the approximation that GPT-2 uses.");
  home.def(
      "leaky_relu",
      [](const Given& x, const Real& negative_slope) {
        const double slope = negative_slope;
        return apply([&](const Variable& v) { return ops::leaky_relu(v, slope); }, x);
      },
      nb::arg("negative_slope") = 0.01);
  home.def(
      "elu",
      [](const Given& x, const Real& alpha) {
        const double a = alpha;
        return apply([&](const Variable& v) { return ops::elu(v, a); }, x);
      },
      nb::arg("alpha") = 1.0);
  home.def(
      "softplus",
      [](const Given& x, const Real& beta, const Real& threshold) {
        const double b = beta, t = threshold;
        return apply([&](const Variable& v) { return ops::softplus(v, b, t); }, x);
      },
      nb::arg("beta") = 1.0, nb::arg("threshold") = 20.0);
  home.def(
      "clamp",
      [](const Given& x, const std::optional<Real>& lowest, const std::optional<Real>& highest) {
        const double infinity = std::numeric_limits<double>::infinity();
        const double least = lowest ? static_cast<double>(*lowest) : -infinity, most = highest ? static_cast<double>(*highest) : infinity;
        return apply([&](const Variable& v) { return ops::clamp(v, least, most); }, x);
      },
      nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  home.def(
      "maximum",
      [](const Given& x, const Given& y) { return apply([](const Variable& a, const Variable& b) { return ops::maximum(a, b); }, x, y); },
      nb::arg("other"));
  home.def(
      "minimum",
      [](const Given& x, const Given& y) { return apply([](const Variable& a, const Variable& b) { return ops::minimum(a, b); }, x, y); },
      nb::arg("other"));
  home.def(
      "masked_fill",
      [](const Given& x, const Given& mask, const Real& value) {
        const double filling = value;
        return apply([&](const Variable& v, const Variable& m) { return ops::masked_fill(v, m.value, filling); }, x, mask);
      },
      nb::arg("mask"), nb::arg("value"));
  home.module.def(
      "where",
      [](const Given& mask, const Given& a, const Given& b) {
        return apply([](const Variable& m, const Variable& x, const Variable& y) { return ops::where(m.value, x, y); }, mask, a, b);
      },
      nb::arg("mask"), nb::arg("a"), nb::arg("b"), "a where the mask (uint8 or bool) is not 0, else b.");
  home.def(
      "dropout",
      [](const Given& x, const Real& p, const Seed& seed, const Whole& first_sample) {
        const double probability = p;
        const RandomKey key{seed};
        const i64 first = first_sample;
        return apply([&](const Variable& v) { return ops::dropout(v, probability, key, first); }, x);
      },
      nb::arg("p"), nb::kw_only(), nb::arg("seed"), nb::arg("first_sample") = 0,
      "Sets elements of x[B, ...] to 0 with probability p and scales the others by 1 / (1 - p). The result depends only on the seed, the "
      "index of the row (counted from first_sample) and the position in the row.");
}

void bind_reductions(const Home& home) {
  const auto axes_arg = nb::arg("axis") = nb::none();
  const auto keep = nb::arg("keepdims") = false;
  home.def(
      "sum",
      [](const Given& x, const Axes& axes, const Flag& keepdims) {
        return apply([&, list = list_of(axes, x)](const Variable& v) { return each_axis(v, list, keepdims, ops::sum, ops::sum); }, x);
      },
      axes_arg, keep, "Reduces one axis, several, or all.");
  home.def(
      "mean",
      [](const Given& x, const Axes& axes, const Flag& keepdims) {
        return apply([&, list = list_of(axes, x)](const Variable& v) { return each_axis(v, list, keepdims, ops::mean, ops::mean); }, x);
      },
      axes_arg, keep, "Reduces one axis, several, or all.");
  home.def(
      "max",
      [](const Given& x, const Axes& axes, const Flag& keepdims) {
        return apply([&, list = list_of(axes, x)](const Variable& v) { return ops::max(v, list, keepdims); }, x);
      },
      axes_arg, keep);
  home.def(
      "min",
      [](const Given& x, const Axes& axes, const Flag& keepdims) {
        return apply([&, list = list_of(axes, x)](const Variable& v) { return ops::min(v, list, keepdims); }, x);
      },
      axes_arg, keep);
  home.def(
      "var",
      [](const Given& x, const Axes& axes, const Real& correction, const Flag& keepdims) {
        const double less = correction;
        return apply([&, list = list_of(axes, x)](const Variable& v) { return ops::var(v, list, less, keepdims); }, x);
      },
      axes_arg, nb::arg("correction") = 1.0, keep, "The variance, sum((x - mean)^2) / (n - correction).");
  home.def(
      "logsumexp",
      [](const Given& x, const Axes& axes, const Flag& keepdims) {
        return apply([&, list = list_of(axes, x)](const Variable& v) { return ops::logsumexp(v, list, keepdims); }, x);
      },
      axes_arg, keep);
  home.def(
      "argmax",
      [](const Given& x, const Whole& axis, const Flag& keepdims) {
        return apply([&, at = axis.small()](const Variable& v) -> Variable { return ops::argmax(v.value, at, keepdims); }, x);
      },
      nb::arg("axis") = -1, keep, "The index of the first largest element, as int32.");
  home.def(
      "argmin",
      [](const Given& x, const Whole& axis, const Flag& keepdims) {
        return apply([&, at = axis.small()](const Variable& v) -> Variable { return ops::argmin(v.value, at, keepdims); }, x);
      },
      nb::arg("axis") = -1, keep);
  home.def(
      "softmax",
      [](const Given& x, const Whole& axis) { return apply([at = axis.small()](const Variable& v) { return ops::softmax(v, at); }, x); },
      nb::arg("axis") = -1);
  home.def(
      "log_softmax",
      [](const Given& x, const Whole& axis) {
        return apply([at = axis.small()](const Variable& v) { return ops::log_softmax(v, at); }, x);
      },
      nb::arg("axis") = -1);
  home.def(
      "cumsum",
      [](const Given& x, const Whole& axis) { return apply([at = axis.small()](const Variable& v) { return ops::cumsum(v, at); }, x); },
      nb::arg("axis") = -1);
  home.def(
      "topk",
      [](const Given& x, const Whole& k, const Whole& axis) {
        Tensor index;
        Array values = apply(
            [&, count = static_cast<i64>(k), at = axis.small()](const Variable& v) {
              const ops::TopK best = ops::topk(v, count, at);
              index = best.index;
              return best.values;
            },
            x);
        return nb::make_tuple(values, made(index));
      },
      nb::arg("k"), nb::arg("axis") = -1, "The k largest elements in order, and their indices (int32).");
}

const Array& or_absent(const std::optional<Given>& given) {
  static const Array absent;
  return given ? static_cast<const Array&>(*given) : absent;
}

void bind_layers(const Home& home) {
  nb::module_& m = home.module;
  home.def(
      "matmul",
      [](const Given& a, const Given& b) { return apply([](const Variable& x, const Variable& y) { return ops::matmul(x, y); }, a, b); },
      nb::arg("other"), "[..., M, K] @ [..., K, N] -> [..., M, N].");
  m.def(
      "einsum",
      [](const Word& equation, const Given& a, const Given& b) {
        return apply([&, text = equation.text()](const Variable& x, const Variable& y) { return ops::einsum(text, x, y); }, a, b);
      },
      nb::arg("equation"), nb::arg("a"), nb::arg("b"), "Einstein's summation of two tensors: \"bij,bjk->bik\".");
  m.def(
      "linear",
      [](const Given& x, const Given& weight, const std::optional<Given>& bias) {
        return apply(
            [](const Variable& v, const Variable& w, const Variable& b) { return ops::linear(v, w, b, ops::WeightLayout::out_in); }, x,
            weight, or_absent(bias));
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), "x[..., I], weight[O, I], bias[O] -> [..., O]");
  m.def(
      "embedding",
      [](const Numbers& ids, const Given& weight) {
        const Tensor numbers = whole_numbers(ids, "ids");
        return apply([&](const Variable& w) { return ops::embedding(brought_here(numbers), w); }, weight);
      },
      nb::arg("ids"), nb::arg("weight"), "The rows of weight[V, C] that ids[...] name, each in [0, V): [..., C].");
  m.def(
      "layer_norm",
      [](const Given& x, const Given& weight, const Given& bias, const Real& epsilon) {
        return apply([&, eps = static_cast<double>(epsilon)](const Variable& v, const Variable& w,
                                                             const Variable& b) { return ops::layer_norm(v, w, b, eps); },
                     x, weight, bias);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps") = 1e-5,
      "Normalizes over the last axis: x[..., C], weight[C], bias[C].");
  m.def(
      "rms_norm",
      [](const Given& x, const Given& weight, const Real& epsilon) {
        return apply([&, eps = static_cast<double>(epsilon)](const Variable& v, const Variable& w) { return ops::rms_norm(v, w, eps); }, x,
                     weight);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("eps") = 1e-6, "Normalizes over the last axis: x[..., C], weight[C].");
  m.def(
      "scaled_dot_product_attention",
      [](const Given& q, const Given& k, const Given& v, const Flag& causal, const std::optional<Real>& scale) {
        ops::AttentionOptions options;
        const double usual = q.value().rank() > 0 ? 1 / std::sqrt(static_cast<double>(q.value().size(-1))) : 1;
        options.scale = scale ? static_cast<double>(*scale) : usual;
        options.causal = causal;
        return apply([&](const Variable& a, const Variable& b, const Variable& c) { return ops::attention(a, b, c, options); }, q, k, v);
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("is_causal") = true, nb::arg("scale") = nb::none(),
      "q[B, T, H, D], k and v[B, T, Hkv, D] -> [B, T, H, D]; memory grows linearly with T. (In PyTorch, H comes before T.)");
  m.def(
      "conv2d",
      [](const Given& x, const Given& weight, const std::optional<Given>& bias, const Whole& stride, const Whole& padding,
         const Whole& dilation, const Whole& groups) {
        ops::ConvOptions options;
        options.stride = stride.small(), options.padding = padding.small(), options.dilation = dilation.small();
        options.groups = groups.small();
        return apply([&](const Variable& v, const Variable& w, const Variable& b) { return ops::conv2d(v, w, b, options); }, x, weight,
                     or_absent(bias));
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1, nb::arg("padding") = 0, nb::arg("dilation") = 1,
      nb::arg("groups") = 1, "x[N, C, H, W], weight[O, C / groups, kh, kw], bias[O] -> [N, O, Ho, Wo]");
  m.def(
      "max_pool2d",
      [](const Given& x, const Whole& kernel_size, const std::optional<Whole>& stride, const Whole& padding) {
        const i64 kernel = kernel_size.small(), by = stride ? stride->small() : kernel, around = padding.small();
        return apply([&](const Variable& v) { return ops::max_pool2d(v, kernel, by, around); }, x);
      },
      nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
  m.def(
      "avg_pool2d",
      [](const Given& x, const Whole& kernel_size, const std::optional<Whole>& stride, const Whole& padding) {
        const i64 kernel = kernel_size.small(), by = stride ? stride->small() : kernel, around = padding.small();
        return apply([&](const Variable& v) { return ops::avg_pool2d(v, kernel, by, around); }, x);
      },
      nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
}

void bind_losses(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](const Given& logits, const Numbers& targets, const Word& reduction, const Whole& ignore_index, const Real& label_smoothing) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction), options.ignored = ignore_index.small(), options.label_smoothing = label_smoothing;
        const Tensor classes = whole_numbers(targets, "targets");
        return apply([&](const Variable& x) { return ops::cross_entropy(x, brought_here(classes), options); }, logits);
      },
      nb::arg("logits"), nb::arg("targets"), nb::arg("reduction") = "mean", nb::arg("ignore_index") = -100,
      nb::arg("label_smoothing") = 0.0,
      "The loss of logits[..., V] for classes[...], in nats; negative targets do not contribute. A reduced loss is f64.");
  m.def(
      "nll_loss",
      [](const Given& x, const Numbers& targets, const Word& reduction) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction);
        const Tensor classes = whole_numbers(targets, "targets");
        return apply([&](const Variable& v) { return ops::nll_loss(v, brought_here(classes), options); }, x);
      },
      nb::arg("log_probabilities"), nb::arg("targets"), nb::arg("reduction") = "mean",
      "The loss of log-probabilities[..., V] for classes[...].");
  const auto pair_loss = [&](const char* name, Variable (*op)(const Variable&, const Variable&, ops::Reduction)) {
    m.def(
        name,
        [op](const Given& x, const Given& target, const Word& reduction) {
          const ops::Reduction how = reduction_of(reduction);
          return apply([&](const Variable& a, const Variable& b) { return op(a, b, how); }, x, target);
        },
        nb::arg("x"), nb::arg("target"), nb::arg("reduction") = "mean");
  };
  pair_loss("mse_loss", ops::mse_loss);
  pair_loss("l1_loss", ops::l1_loss);
  m.def(
      "huber_loss",
      [](const Given& x, const Given& target, const Real& bend, const Word& reduction) {
        const ops::Reduction how = reduction_of(reduction);
        return apply(
            [&, delta = static_cast<double>(bend)](const Variable& a, const Variable& b) { return ops::huber_loss(a, b, delta, how); }, x,
            target);
      },
      nb::arg("x"), nb::arg("target"), nb::arg("delta") = 1.0, nb::arg("reduction") = "mean");
  m.def(
      "bce_with_logits_loss",
      [](const Given& x, const Given& target, const Word& reduction) {
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
