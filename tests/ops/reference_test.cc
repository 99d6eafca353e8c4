// Compares every op with the reference data of tests/data/ops (PyTorch, f32 and f64): outputs and all gradients.
#include <algorithm>
#include <map>

#include "kernels/elementwise/pointwise.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/glu.h"
#include "ops/elementwise/pointwise.h"
#include "ops/images/batch_norm.h"
#include "ops/images/conv.h"
#include "ops/images/pool.h"
#include "ops/layout/index.h"
#include "ops/layout/shape.h"
#include "ops/losses/class_loss.h"
#include "ops/losses/error_loss.h"
#include "ops/losses/loss.h"
#include "ops/products/einsum.h"
#include "ops/products/linear.h"
#include "ops/products/matmul.h"
#include "ops/rows/axis.h"
#include "ops/rows/norm.h"
#include "ops/rows/reduce.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/embedding.h"
#include "ops/sequence/rope.h"
#include "tests/support/numbers.h"
#include "tests/support/reference_file.h"

namespace spillway::reference_test {
namespace {

using nlohmann::json;
using ops::Variable;
using test::ReferenceFile;

struct Case {
  json attributes;
  std::map<std::string, Variable> in;
  std::map<std::string, Tensor> ints;
  const Variable& operator[](const std::string& name) const { return in.at(name); }
};

using Op = std::function<Variable(const Case&)>;

// Selects the cases of a reference file that an op supports. Other cases use options that the op does not have.
using Wanted = std::function<bool(const std::string& name, const json& attributes)>;

// The tolerances for f32 are those of the reference data's README. For f64 the
// tolerance is 1e-10, where rounding errors of the longest sums are 1e-13.
struct Tolerance {
  double relative = 1e-5, absolute = 1e-6;
};

void compare(const Tensor& got, const Tensor& want, const Tolerance& tolerance, const std::string& what) {
  if (what.find("/f64/") != std::string::npos) return test::expect_near(got, want, 1e-10, 1e-10, what);
  test::expect_near(got, want, tolerance.relative, tolerance.absolute, what);
}

Tensor as_dtype(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor to = empty(t.shape(), dtype);
  for (i64 i = 0; i < t.elems(); ++i) to.span<double>()[static_cast<size_t>(i)] = test::at(t, i);
  return to;
}

// Moves `from` by the share `share` towards `to`, as an optimizer step moves running statistics towards a batch's statistics.
Tensor part_of_the_way(const Tensor& from, const Tensor& to, double share) {
  const Tensor moved = empty(from.shape(), DType::f64);
  for (i64 i = 0; i < from.elems(); ++i)
    moved.span<double>()[static_cast<size_t>(i)] = test::at(from, i) + share * (test::at(to, i) - test::at(from, i));
  return moved;
}

void run_case(const ReferenceFile& file, const std::string& name, const json& about, const Op& op, const Tolerance& tolerance) {
  for (const std::string dtype : {"f32", "f64"}) {
    const std::string prefix = name + "/" + dtype + "/";
    SCOPED_TRACE(prefix);
    autograd::Tape tape;
    Case c{about.at("attrs"), {}, {}};
    const json& constants = about.at("no_grad_inputs");
    for (const auto& [input, shape] : about.at("inputs").items()) {
      const Tensor value = file.get(prefix + "in/" + input);
      const bool constant = std::count(constants.begin(), constants.end(), input) > 0 && !file.has(prefix + "aux/new_" + input);
      c.in[input] = constant ? Variable(value) : tape.input(value);
    }
    for (const auto& [input, shape] : about.at("int_inputs").items()) c.ints[input] = file.get(name + "/int/" + input);
    const Variable out = op(c);
    // The f64 inputs are the widened f32 inputs, so the f64 results are the reference for both types.
    const std::string truth = name + "/f64/";
    compare(out.value, file.get(truth + "out"), tolerance, prefix + "out");
    tape.backward(out, as_dtype(file.get(prefix + "gout"), out.dtype()));
    for (const auto& [input, variable] : c.in) {
      const std::string after = prefix + "aux/new_" + input;
      if (!variable.needs_gradient()) continue;
      if (file.has(after)) {
        const Tensor moved = part_of_the_way(variable.value, tape.take_gradient(variable), c.attributes.at("momentum"));
        compare(moved, file.get(truth + "aux/new_" + input), tolerance, after);
        continue;
      }
      compare(tape.take_gradient(variable), file.get(truth + "grad/" + input), tolerance, prefix + "grad/" + input);
    }
    EXPECT_EQ(tape.saved_bytes(), 0);
  }
}

json index() {
  std::ifstream in(test::data("ops/index.json"));
  return json::parse(in);
}

void check(const std::string& file_name, int cases, const Op& op, const Tolerance& tolerance = {}, const Wanted& wanted = {}) {
  const ReferenceFile file("ops/" + file_name + ".safetensors");
  int run = 0;
  const json about_all = index().at(file_name);
  for (const auto& [name, about] : about_all.items()) {
    if (wanted && !wanted(name, about.at("attrs"))) continue;
    run_case(file, name, about, op, tolerance);
    ++run;
  }
  EXPECT_EQ(run, cases) << "the reference data changed: every case must be run or left out on purpose";
}

bool starts(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

TEST(Reference, Binary) {
  check("add", 6, [](const Case& c) { return ops::add(c["a"], c["b"]); });
  check("sub", 6, [](const Case& c) { return ops::sub(c["a"], c["b"]); });
  check("mul", 6, [](const Case& c) { return ops::mul(c["a"], c["b"]); });
  check("div", 6, [](const Case& c) { return ops::div(c["a"], c["b"]); });
}

TEST(Reference, Unary) {
  const std::map<std::string, Variable (*)(const Variable&)> all{
      {"exp", ops::exp},         {"log", ops::log},   {"sqrt", ops::sqrt}, {"rsqrt", ops::rsqrt},         {"tanh", ops::tanh},
      {"sigmoid", ops::sigmoid}, {"relu", ops::relu}, {"silu", ops::silu}, {"gelu_tanh", ops::gelu_tanh}, {"gelu_erf", ops::gelu_erf}};
  for (const auto& [name, op] : all) check(name, 3, [op = op](const Case& c) { return op(c["x"]); });
}

TEST(Reference, Pointwise) {
  check("pow", 12, [](const Case& c) { return ops::pow(c["x"], c.attributes.at("exponent").get<double>()); });
  check("pow", 12, [](const Case& c) {  // this call of pow() takes the exponent as a tensor
    const Tensor exponent = empty({1}, c["x"].dtype());
    kernels::pointwise(kernels::Pointwise::fill, {}, {c.attributes.at("exponent").get<double>(), 0}, exponent);
    return ops::pow(c["x"], exponent);
  });
  check("clamp", 6, [](const Case& c) {
    return ops::clamp(c["x"], c.attributes.at("min").get<double>(), c.attributes.value("max", std::numeric_limits<double>::infinity()));
  });
  check("where", 3, [](const Case& c) { return ops::where(c.ints.at("cond"), c["a"], c["b"]); });
}

TEST(Reference, Shapes) {
  check("reshape", 6, [](const Case& c) {
    const auto extents = c.attributes.at("shape").get<std::vector<i64>>();
    const Shape shape{std::span<const i64>(extents)};
    if (!c.attributes.contains("note")) return ops::reshape(c["x"], shape);
    return ops::reshape(c["x"].shape().rank() == 2 ? ops::permute(c["x"], {1, 0}) : ops::permute(c["x"], {2, 1, 0}), shape);
  });
  check("permute", 3, [](const Case& c) { return ops::permute(c["x"], c.attributes.at("dims").get<std::vector<int>>()); });
  check("transpose", 3, [](const Case& c) {
    std::vector<int> axes;
    for (int i = 0; i < c["x"].shape().rank(); ++i) axes.push_back(i);
    std::swap(axes.front(), axes.back());
    return ops::permute(c["x"], axes);
  });
  check("transpose", 3,
        [](const Case& c) { return ops::transpose(c["x"], c.attributes.at("dims")[0].get<int>(), c.attributes.at("dims")[1].get<int>()); });
  check("concat", 3, [](const Case& c) {
    std::vector<Variable> parts;
    for (const auto& [name, part] : c.in) parts.push_back(part);
    return ops::concat(parts, c.attributes.at("axis"));
  });
  // Case 1 has steps other than 1, which ops::slice() does not offer. It is tested with another op.
  const Op slice = [](const Case& c) {
    Variable x = c["x"];
    int axis = 0;
    for (const auto& range : c.attributes.at("slices")) x = ops::slice(x, axis++, range[0], range[1]);
    return x;
  };
  check("slice", 2, slice, {}, [](const std::string& name, const json&) { return name != "case_1"; });
}

TEST(Reference, Picks) {
  check("index_select", 3, [](const Case& c) { return ops::index_select(c["x"], c.attributes.at("axis"), c.ints.at("idx")); });
  check("gather", 3, [](const Case& c) { return ops::gather(c["x"], c.attributes.at("axis"), c.ints.at("idx")); });
}

// Compares ops::split(), which has several outputs, each with a separate gradient. Putting the outputs together again must give x, and
// putting their gradients together the gradient of x.
TEST(Reference, Split) {
  const ReferenceFile file("ops/split.safetensors");
  const json all = index().at("split");
  ASSERT_EQ(all.size(), 3u);
  for (const auto& [name, about] : all.items()) {
    for (const std::string dtype : {"f32", "f64"}) {
      const std::string prefix = name + "/" + dtype + "/";
      autograd::Tape tape;
      const Variable x = tape.input(file.get(prefix + "in/x"));
      const int axis = about.at("attrs").at("axis");
      const auto parts = ops::split(x, about.at("attrs").at("sizes").get<std::vector<i64>>(), axis);
      std::vector<Variable> upstream;
      for (size_t i = 0; i < parts.size(); ++i) {
        compare(parts[i].value, file.get(prefix + "out/" + std::to_string(i)), {}, prefix + "out");
        upstream.push_back(file.get(prefix + "gout/" + std::to_string(i)));
      }
      tape.backward(ops::concat(parts, axis), ops::concat(upstream, axis).value);
      compare(tape.take_gradient(x), file.get(prefix + "grad/x"), {}, prefix + "grad");
    }
  }
}

TEST(Reference, Sums) {
  const auto reduce = [](const Case& c, auto op) {
    const json& axis = c.attributes.at("axis");
    const bool keep = c.attributes.at("keepdim");
    if (axis.is_null()) return op(c["x"], -100, false);
    if (axis.is_number()) return op(c["x"], axis.get<int>(), keep);
    Variable x = c["x"];
    for (size_t i = axis.size(); i-- > 0;) x = op(x, axis[i].get<int>(), keep);
    return x;
  };
  check("sum", 6, [&](const Case& c) {
    return reduce(c, [](const Variable& x, int axis, bool keep) { return axis == -100 ? ops::sum(x) : ops::sum(x, axis, keep); });
  });
  check("mean", 6, [&](const Case& c) {
    return reduce(c, [](const Variable& x, int axis, bool keep) { return axis == -100 ? ops::mean(x) : ops::mean(x, axis, keep); });
  });
}

TEST(Reference, AlongAxes) {
  const auto axes = [](const Case& c) {
    const json& axis = c.attributes.at("axis");
    return axis.is_null() ? ops::AxisList() : axis.is_number() ? ops::AxisList{axis.get<int>()} : axis.get<ops::AxisList>();
  };
  const auto keep = [](const Case& c) { return c.attributes.at("keepdim").get<bool>(); };
  check("max", 6, [&](const Case& c) { return ops::max(c["x"], axes(c), keep(c)); });
  check("max", 6, [&](const Case& c) { return ops::neg(ops::min(ops::neg(c["x"]), axes(c), keep(c))); });
  check("var", 12, [&](const Case& c) { return ops::var(c["x"], axes(c), c.attributes.at("correction"), keep(c)); });
  check("softmax", 5, [](const Case& c) { return ops::softmax(c["x"], c.attributes.at("axis")); });
  check("log_softmax", 5, [](const Case& c) { return ops::log_softmax(c["x"], c.attributes.at("axis")); });
  check("softmax", 5, [](const Case& c) { return ops::exp(ops::log_softmax(c["x"], c.attributes.at("axis"))); });
  check("log_softmax", 5,
        [](const Case& c) { return ops::sub(c["x"], ops::logsumexp(c["x"], {c.attributes.at("axis").get<int>()}, true)); });
}

TEST(Reference, Linear) {
  const auto bias = [](const Case& c) { return c.in.count("b") ? c["b"] : Variable(); };
  check("linear", 6, [&](const Case& c) { return ops::linear(c["x"], c["w"], bias(c), ops::WeightLayout::out_in); });
  check("linear", 6, [&](const Case& c) { return ops::linear(c["x"], ops::permute(c["w"], {1, 0}), bias(c), ops::WeightLayout::in_out); });
}

TEST(Reference, Matmul) {
  const auto flip = [](const Variable& x) {
    std::vector<int> axes;
    for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return ops::permute(x, axes);
  };
  const auto op = [&](const Case& c) {
    const std::string formula = c.attributes.at("formula");
    return ops::matmul(formula.find("a^T") != std::string::npos ? flip(c["a"]) : c["a"],
                       formula.find("b^T") != std::string::npos ? flip(c["b"]) : c["b"]);
  };
  check("matmul", 20, op);
}

TEST(Reference, Einsum) {
  const Op einsum = [](const Case& c) { return ops::einsum(c.attributes.at("equation"), c["a"], c["b"]); };
  check("einsum", 9, einsum);
  check("einsum_ellipsis", 8, einsum);
}

TEST(Reference, Embedding) {
  check("embedding", 3, [](const Case& c) { return ops::embedding(c.ints.at("idx"), c["w"]); });
}

TEST(Reference, Norms) {
  const auto layer = [](const Case& c) { return ops::layer_norm(c["x"], c["w"], c["b"], c.attributes.at("eps")); };
  // With one column (case 2) the variance is 0, and 1/sqrt(eps) magnifies rounding errors (README of the reference data).
  check("layer_norm", 3, layer, {}, [](const std::string& name, const json&) { return name != "case_2"; });
  check("layer_norm", 1, layer, {1e-5, 1e-4}, [](const std::string& name, const json&) { return name == "case_2"; });
  check("rms_norm", 4, [](const Case& c) { return ops::rms_norm(c["x"], c["w"], c.attributes.at("eps")); });
}

TEST(Reference, Rope) {
  const auto turned = [](const Case& c, const auto& rope) {
    const Variable x = ops::permute(c["x"], {0, 2, 1, 3});  // the reference data has the axis order B, H, T, D
    const i64 rows = x.shape()[0], positions = x.shape()[1], width = x.shape()[3];
    std::vector<i32> at;
    for (i64 i = 0; i < rows * positions; ++i)
      at.push_back(static_cast<i32>(i % positions) + c.attributes.at("position_offset").get<i32>());
    std::vector<double> frequencies;
    for (i64 i = 0; i < width / 2; ++i) {
      frequencies.push_back(std::pow(c.attributes.at("theta").get<double>(), -2.0 * static_cast<double>(i) / static_cast<double>(width)));
    }
    return ops::permute(rope(x, test::ints(at, {rows, positions}), frequencies, 1), {0, 2, 1, 3});
  };
  check(
      "rope", 3, [&](const Case& c) { return turned(c, ops::rope); }, {},
      [](const std::string& name, const json&) { return starts(name, "half"); });
  check(
      "rope", 3, [&](const Case& c) { return turned(c, ops::rope_interleaved); }, {},
      [](const std::string& name, const json&) { return starts(name, "interleaved"); });
}

TEST(Reference, SwiGlu) {
  check("swiglu", 3, [](const Case& c) { return ops::swiglu(c["gate"], c["up"]); });
}

TEST(Reference, Attention) {
  check("attention", 8, [](const Case& c) {
    const auto turn = [](const Variable& x) { return ops::permute(x, {0, 2, 1, 3}); };
    ops::AttentionOptions options;
    options.scale = c.attributes.at("scale");
    options.causal = c.attributes.at("causal");
    return turn(ops::attention(turn(c["q"]), turn(c["k"]), turn(c["v"]), options));
  });
}

TEST(Reference, CrossEntropy) {
  const auto wanted = [](const std::string& reduction) {
    return [=](const std::string&, const json& attributes) {
      return attributes.at("reduction") == reduction && !attributes.contains("label_smoothing");
    };
  };
  check(
      "cross_entropy", 9, [](const Case& c) { return ops::cross_entropy_mean(c["logits"], c.ints.at("target")); }, {}, wanted("mean"));
  check(
      "cross_entropy", 9, [](const Case& c) { return ops::cross_entropy_sum(c["logits"], c.ints.at("target"), 1); }, {}, wanted("sum"));
}

TEST(Reference, Losses) {
  const auto reduction = [](const Case& c) {
    const std::string name = c.attributes.at("reduction");
    return name == "none" ? ops::Reduction::none : name == "sum" ? ops::Reduction::sum : ops::Reduction::mean;
  };
  const auto options = [&](const Case& c) {
    return ops::ClassLossOptions{reduction(c), {}, c.attributes.value("ignore_index", -100), c.attributes.value("label_smoothing", 0.0)};
  };
  check("mse_loss", 6, [&](const Case& c) { return ops::mse_loss(c["x"], c["y"], reduction(c)); });
  check("nll_loss", 9, [&](const Case& c) { return ops::nll_loss(c["logp"], c.ints.at("target"), options(c)); });
  check("cross_entropy", 27, [&](const Case& c) { return ops::cross_entropy(c["logits"], c.ints.at("target"), options(c)); });
}

TEST(Reference, Conv2d) {
  check("conv2d", 6,
        [](const Case& c) {
          ops::ConvOptions options;
          options.stride = c.attributes.at("stride").get<i64>();
          options.padding = c.attributes.at("padding").get<i64>();
          return ops::conv2d(c["x"], c["w"], c.in.count("b") ? c["b"] : Variable(), options);
        },
        {5e-5, 1e-6});
}

TEST(Reference, Convolutions) {
  const Tolerance tolerance{5e-5, 1e-6};
  const auto bias = [](const Case& c) { return c.in.count("b") ? c["b"] : Variable(); };
  const auto number = [](const Case& c, const char* name) { return c.attributes.at(name).get<i64>(); };
  const auto pair = [](const Case& c, const char* name) {
    const json& both = c.attributes.at(name);
    return ops::Pair(both[0].get<i64>(), both[1].get<i64>());
  };
  const auto rows = [&](const Case& c) {
    return ops::Conv1dOptions{number(c, "stride"), number(c, "padding"), number(c, "dilation"), number(c, "groups")};
  };
  const auto images = [&](const Case& c) {
    return ops::ConvOptions{pair(c, "stride"), pair(c, "padding"), pair(c, "dilation"), number(c, "groups")};
  };
  check(
      "conv1d", 4, [&](const Case& c) { return ops::conv1d(c["x"], c["w"], bias(c), rows(c)); }, tolerance);
  check(
      "conv2d_more", 3, [&](const Case& c) { return ops::conv2d(c["x"], c["w"], bias(c), images(c)); }, tolerance);
  check(
      "conv_transpose1d", 3,
      [&](const Case& c) {
        return ops::conv_transpose1d(c["x"], c["w"], bias(c), {rows(c), number(c, "output_padding")});
      },
      tolerance);
  check(
      "conv_transpose2d", 4,
      [&](const Case& c) {
        return ops::conv_transpose2d(c["x"], c["w"], bias(c), {images(c), pair(c, "output_padding")});
      },
      tolerance);
}

TEST(Reference, MorePools) {
  const auto pair = [](const Case& c, const char* name) {
    const json& both = c.attributes.at(name);
    return ops::Pair(both[0].get<i64>(), both[1].get<i64>());
  };
  const auto at = [](const Case& c, const char* name) { return c.attributes.at(name).get<i64>(); };
  check("avg_pool2d_without_padding", 3,
        [&](const Case& c) { return ops::avg_pool2d(c["x"], pair(c, "kernel_size"), pair(c, "stride"), pair(c, "padding"), false); });
  check("pool_ceil", 8, [&](const Case& c) {
    const ops::Pair kernel = pair(c, "kernel_size"), stride = pair(c, "stride"), padding = pair(c, "padding");
    if (c.attributes.at("op") == "max") return ops::max_pool2d(c["x"], kernel, stride, padding, true);
    return ops::avg_pool2d(c["x"], kernel, stride, padding, c.attributes.at("count_include_pad").get<bool>(), true);
  });
  check("adaptive_max_pool2d", 4, [&](const Case& c) { return ops::adaptive_max_pool2d(c["x"], pair(c, "output_size")); });
  check("max_pool1d", 2, [&](const Case& c) { return ops::max_pool1d(c["x"], at(c, "kernel"), at(c, "stride"), at(c, "padding")); });
  check("avg_pool1d", 2, [&](const Case& c) { return ops::avg_pool1d(c["x"], at(c, "kernel"), at(c, "stride"), at(c, "padding")); });
}

TEST(Reference, Activations) {
  const auto at = [](const Case& c, const char* name) { return c.attributes.at(name).get<double>(); };
  check("leaky_relu", 4, [&](const Case& c) { return ops::leaky_relu(c["x"], at(c, "negative_slope")); });
  check("elu", 4, [&](const Case& c) { return ops::elu(c["x"], at(c, "alpha")); });
  check("softplus", 4, [&](const Case& c) { return ops::softplus(c["x"], at(c, "beta"), at(c, "threshold")); });
  check("hardswish", 2, [&](const Case& c) { return ops::hardswish(c["x"]); });
  check("mish", 2, [&](const Case& c) { return ops::mish(c["x"]); });
}

TEST(Reference, Pools) {
  const auto at = [](const Case& c, const char* name) { return c.attributes.at(name).get<i64>(); };
  check("max_pool2d", 4, [&](const Case& c) { return ops::max_pool2d(c["x"], at(c, "kernel"), at(c, "stride"), at(c, "padding")); });
  check("avg_pool2d", 4, [&](const Case& c) { return ops::avg_pool2d(c["x"], at(c, "kernel"), at(c, "stride"), at(c, "padding")); });
  check("adaptive_avg_pool2d", 3, [](const Case& c) {
    const json& size = c.attributes.at("output_size");
    return ops::adaptive_avg_pool2d(c["x"],
                                    size.is_array() ? ops::Pair(size[0].get<i64>(), size[1].get<i64>()) : ops::Pair(size.get<i64>()));
  });
}

// In training, the batch statistics that the op returns are compared as well: the data has the updated running statistics.
TEST(Reference, BatchNorm2d) {
  const Op op = [](const Case& c) {
    ops::BatchNormOptions options;
    options.eps = c.attributes.at("eps");
    options.training = c.attributes.at("training");
    return ops::batch_norm2d(c["x"], c["w"], c["b"], c["running_mean"], c["running_var"], options);
  };
  check("batch_norm2d", 6, op);
  check("batch_norm1d", 2, op);
}

TEST(Reference, GroupNorm) {
  check("group_norm", 5, [](const Case& c) {
    return ops::group_norm(c["x"], c.attributes.at("groups").get<i64>(), c["w"], c["b"], c.attributes.at("eps").get<double>());
  });
  check("instance_norm", 2, [](const Case& c) { return ops::instance_norm(c["x"], c["w"], c["b"], c.attributes.at("eps").get<double>()); });
}

}  // namespace
}  // namespace spillway::reference_test
