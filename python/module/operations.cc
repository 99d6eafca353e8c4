// Binds the operations under their PyTorch names, as functions and as methods of their first tensor.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
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
#include "ops/rows/norm.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "python/module/arithmetic.h"
#include "python/module/home.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

constexpr i64 kZero[] = {0};

using Numbers = nb::object;  // an argument with whole numbers, from any kind of array

// Binds an operation of one tensor. Whole numbers are converted to f32, unless `of_whole` says what the result is.
void unary(const Home& home, const char* name, Variable (*op)(const Variable&), const char* what, i64 (*of_whole)(i64) = nullptr) {
  home.def(
      name,
      [=](const Given& x) {
        return apply(
            [=](const Variable& v) -> Variable {
              if (is_floating(v.dtype())) return op(v);
              if (of_whole == nullptr) return op(as_type(v, DType::f32));
              if (v.dtype() == DType::boolean) throw WrongValue("expected numbers, got a bool tensor: convert it, with x.long()");
              return each_whole(v.value, of_whole);
            },
            x);
      },
      what);
}

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::mean;
  if (name == "sum") return ops::Reduction::sum;
  if (name == "none") return ops::Reduction::none;
  throw WrongValue("reduction: expected mean, sum or none, got " + name);
}

// Returns a where the mask is not 0, and b elsewhere. a and b may be of any type.
Variable chosen(const Tensor& mask, const Variable& a, const Variable& b) {
  if (is_floating(a.dtype())) return ops::where(mask, a, b);
  const auto wide = [](const Variable& v) { return Variable(converted(v.value, DType::int64)); };
  const Tensor set = converted(mask, DType::int64);
  const Tensor first = pairs_of_whole(Pairwise::mul, set, wide(a).value, DType::int64);
  const Tensor clear = pairs_of_whole(Pairwise::eq, set, tensor_of<i64>(std::span<const i64>(kZero), Shape()), DType::int64);
  const Tensor second = pairs_of_whole(Pairwise::mul, converted(clear, DType::int64), wide(b).value, DType::int64);
  return pairs_of_whole(Pairwise::add, first, second, a.dtype());
}

Array clamped(const Array& x, const std::optional<Operand>& lowest, const std::optional<Operand>& highest) {
  if (!lowest && !highest) throw WrongValue("clamp: expected min, max or both, got none of them");
  const Side self = side_of(x);
  std::optional<Side> least, most;
  if (lowest) least = side_of(lowest->given, x);
  if (highest) most = side_of(highest->given, x);
  const bool numbers = (!least || least->is_number) && (!most || most->is_number);
  const bool floats = is_floating(self.dtype) && (!least || category(least->dtype) <= 2) && (!most || category(most->dtype) <= 2);
  if (numbers && floats) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double from = least ? static_cast<double>(least->real) : -infinity, to = most ? static_cast<double>(most->real) : infinity;
    if (!(from > to)) return apply([=](const Variable& v) { return ops::clamp(v, from, to); }, x);
  }
  Array y = x;
  if (least) y = arithmetic(Pairwise::maximum, side_of(y), *least);
  if (most) y = arithmetic(Pairwise::minimum, side_of(y), *most);
  return y;
}

void bind_elementwise(const Home& home) {
  unary(home, "abs", ops::abs, "|x|", [](i64 n) { return n < 0 ? -n : n; });
  unary(home, "exp", ops::exp, "e^x");
  unary(home, "log", ops::log, "Natural logarithm.");
  unary(home, "sqrt", ops::sqrt, "Square root.");
  unary(home, "rsqrt", ops::rsqrt, "1 / sqrt(x)");
  unary(home, "tanh", ops::tanh, "Hyperbolic tangent.");
  unary(home, "sigmoid", ops::sigmoid, "1 / (1 + e^-x)");
  unary(home, "relu", ops::relu, "max(x, 0)", [](i64 n) { return n < 0 ? i64{0} : n; });
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
  for (const char* name : {"clamp", "clip"}) {
    home.def(
        name,
        [](const Given& x, const std::optional<Operand>& lowest, const std::optional<Operand>& highest) {
          return clamped(x, lowest, highest);
        },
        nb::arg("min") = nb::none(), nb::arg("max") = nb::none(), "x limited to [min, max], numbers or tensors.");
  }
  home.def(
      "masked_fill",
      [](const Given& x, const Given& mask, const Operand& value) {
        const Array& self = x;
        const Side filling = side_of(value.given, self);
        if (!filling.is_number && filling.array.value().rank() != 0)
          throw WrongValue("masked_fill: expected one number, got a tensor of shape " + to_string(filling.array.value().shape()));
        if (size_of(mask.value().dtype()) != 1)
          throw WrongValue("masked_fill: expected a mask of bools, got " + std::string(to_string(mask.value().dtype())));
        return apply(
            [&](const Variable& m, const Variable& v, const Variable& f) { return chosen(m.value, variable_of(filling, f, v.dtype()), v); },
            mask, x, filling.array);
      },
      nb::arg("mask"), nb::arg("value"), "value where the mask is not 0, else x.");
  home.module.def(
      "where",
      [](const Given& condition, const std::optional<Operand>& a, const std::optional<Operand>& b) -> nb::object {
        const Array& mask = condition;
        if (!a && !b) return nb::cast(mask).attr("nonzero")().attr("unbind")(1);
        if (!a || !b) throw WrongType("where: expected both input and other, or none of them, got one");
        const Side first = side_of(a->given, mask), second = side_of(b->given, mask);
        const DType dtype = common_type(first, second);
        return nb::cast(apply(
            [&](const Variable& m, const Variable& x, const Variable& y) {
              const Tensor bools = size_of(m.dtype()) == 1 ? m.value : converted(m.value, DType::boolean);
              return chosen(bools, variable_of(first, x, dtype), variable_of(second, y, dtype));
            },
            mask, first.array, second.array));
      },
      nb::arg("condition"), nb::arg("input") = nb::none(), nb::arg("other") = nb::none(),
      nb::sig("def where(condition: Tensor, input: object = None, other: object = None) -> Tensor"),
      "input where the condition is not 0, else other; each a tensor or a number.");
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

const Array& or_absent(const std::optional<Given>& given) {
  static const Array absent;
  return given ? static_cast<const Array&>(*given) : absent;
}

void bind_layers(const Home& home) {
  nb::module_& m = home.module;
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
      nb::arg("input"), nb::arg("weight"), nb::arg("bias") = nb::none(), "x[..., I], weight[O, I], bias[O] -> [..., O]");
  m.def(
      "embedding",
      [](const Numbers& ids, const Given& weight) {
        const Tensor numbers = whole_numbers(ids, "ids");
        if (weight.value().rank() == 2) check_ids(numbers, weight.value().size(0));
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
      nb::arg("input"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps") = 1e-5,
      "Normalizes over the last axis: x[..., C], weight[C], bias[C].");
  m.def(
      "rms_norm",
      [](const Given& x, const Given& weight, const Real& epsilon) {
        return apply([&, eps = static_cast<double>(epsilon)](const Variable& v, const Variable& w) { return ops::rms_norm(v, w, eps); }, x,
                     weight);
      },
      nb::arg("input"), nb::arg("weight"), nb::arg("eps") = 1e-6, "Normalizes over the last axis: x[..., C], weight[C].");
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
      nb::arg("input"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1, nb::arg("padding") = 0,
      nb::arg("dilation") = 1, nb::arg("groups") = 1, "x[N, C, H, W], weight[O, C / groups, kh, kw], bias[O] -> [N, O, Ho, Wo]");
  m.def(
      "max_pool2d",
      [](const Given& x, const Whole& kernel_size, const std::optional<Whole>& stride, const Whole& padding) {
        const i64 kernel = kernel_size.small(), by = stride ? stride->small() : kernel, around = padding.small();
        return apply([&](const Variable& v) { return ops::max_pool2d(v, kernel, by, around); }, x);
      },
      nb::arg("input"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
  m.def(
      "avg_pool2d",
      [](const Given& x, const Whole& kernel_size, const std::optional<Whole>& stride, const Whole& padding) {
        const i64 kernel = kernel_size.small(), by = stride ? stride->small() : kernel, around = padding.small();
        return apply([&](const Variable& v) { return ops::avg_pool2d(v, kernel, by, around); }, x);
      },
      nb::arg("input"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0, "x[N, C, H, W] -> [N, C, Ho, Wo]");
}

void bind_losses(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](const Given& logits, const Numbers& targets, const Word& reduction, const Whole& ignore_index, const Real& label_smoothing) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction), options.ignored = ignore_index.small(), options.label_smoothing = label_smoothing;
        const Tensor classes = whole_numbers(targets, "target");
        if (logits.value().rank() > 0) check_targets(classes, logits.value().size(logits.value().rank() - 1), options.ignored);
        return apply([&](const Variable& x) { return ops::cross_entropy(x, brought_here(classes), options); }, logits);
      },
      nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", nb::arg("ignore_index") = -100, nb::arg("label_smoothing") = 0.0,
      "The loss of input[..., V], logits, for target[...], classes, in nats; negative targets do not contribute. A reduced loss is f64.");
  m.def(
      "nll_loss",
      [](const Given& x, const Numbers& targets, const Word& reduction) {
        ops::ClassLossOptions options;
        options.reduction = reduction_of(reduction);
        const Tensor classes = whole_numbers(targets, "target");
        if (x.value().rank() > 0) check_targets(classes, x.value().size(x.value().rank() - 1));
        return apply([&](const Variable& v) { return ops::nll_loss(v, brought_here(classes), options); }, x);
      },
      nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", "The loss of log-probabilities[..., V] for classes[...].");
  const auto pair_loss = [&](const char* name, Variable (*op)(const Variable&, const Variable&, ops::Reduction)) {
    m.def(
        name,
        [op](const Given& x, const Given& target, const Word& reduction) {
          const ops::Reduction how = reduction_of(reduction);
          return apply([&](const Variable& a, const Variable& b) { return op(a, b, how); }, x, target);
        },
        nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean");
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
      nb::arg("input"), nb::arg("target"), nb::arg("delta") = 1.0, nb::arg("reduction") = "mean");
  m.def(
      "bce_with_logits_loss",
      [](const Given& x, const Given& target, const Word& reduction) {
        const ops::Reduction how = reduction_of(reduction);
        return apply([&](const Variable& a, const Variable& b) { return ops::bce_with_logits_loss(a, b.value, how); }, x, target);
      },
      nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean");
}

}  // namespace

void bind_operations(nb::module_& module, nb::class_<Array>& tensor) {
  const Home home{module, tensor};
  bind_elementwise(home);
  bind_layers(home);
  bind_losses(module);
}

}  // namespace spillway::python
