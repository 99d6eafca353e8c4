#include "models/onnx/layers.h"

#include <cmath>
#include <numbers>

namespace spillway::models::onnx {

Value product(Graph& g, const Value& x_NI, const std::string& weight_OI) {
  return g.node("Gemm", {x_NI, g.weight(weight_OI)}, {{"transB", i64{1}}});
}

Value linear(Graph& g, const Value& x_NI, const std::string& name, bool inputs_first) {
  std::vector<Value> inputs = {x_NI, g.weight(name + ".weight")};
  if (g.has_weight(name + ".bias")) inputs.push_back(g.weight(name + ".bias"));
  return g.node("Gemm", inputs, {{"transB", i64{inputs_first ? 0 : 1}}});
}

Value layer_norm(Graph& g, const Value& x, const std::string& name, double eps) {
  std::vector<Value> inputs = {x, g.weight(name + ".weight")};
  if (g.has_weight(name + ".bias")) inputs.push_back(g.weight(name + ".bias"));
  return g.node("LayerNormalization", inputs, {{"axis", i64{-1}}, {"epsilon", eps}});
}

Value rms_norm(Graph& g, const Value& x, const std::string& name, double eps, double gain_offset) {
  const Value w = wide(g, x);
  const Value mean = g.node("ReduceMean", {g.node("Mul", {w, w})}, {{"axes", std::vector<i64>{-1}}, {"keepdims", i64{1}}});
  const Value normed = g.node("Div", {w, g.node("Sqrt", {g.node("Add", {mean, g.number_f32(eps)})})});
  Value gain = wide(g, g.weight(name + ".weight"));
  if (gain_offset != 0) gain = g.node("Add", {gain, g.number_f32(gain_offset)});
  return narrowed(g, g.node("Mul", {normed, gain}));
}

Value gelu_tanh(Graph& g, const Value& x) {
  const Value cubed = g.node("Mul", {g.node("Mul", {x, x}), x});
  const Value inner = g.node("Add", {x, g.node("Mul", {cubed, g.number(0.044715)})});
  const Value tanh = g.node("Tanh", {g.node("Mul", {inner, g.number(std::sqrt(2 / std::numbers::pi))})});
  return g.node("Mul", {g.node("Mul", {x, g.number(0.5)}), g.node("Add", {tanh, g.number(1)})});
}

Value gelu_erf(Graph& g, const Value& x) {
  const Value erf = g.node("Erf", {g.node("Mul", {x, g.number(1 / std::numbers::sqrt2)})});
  return g.node("Mul", {g.node("Mul", {x, g.number(0.5)}), g.node("Add", {erf, g.number(1)})});
}

Value silu(Graph& g, const Value& x) { return g.node("Mul", {x, g.node("Sigmoid", {x})}); }

Value softcapped(Graph& g, const Value& x, double cap) {
  if (cap == 0) return x;
  return g.node("Mul", {g.node("Tanh", {g.node("Div", {x, g.number_f32(cap)})}), g.number_f32(cap)});
}

Value cast(Graph& g, const Value& x, ElementType type) { return g.node("Cast", {x}, {{"to", static_cast<i64>(type)}}); }
Value wide(Graph& g, const Value& x) { return g.is_half() ? cast(g, x, ElementType::f32) : x; }
Value narrowed(Graph& g, const Value& x) { return g.is_half() ? cast(g, x, ElementType::f16) : x; }

Value slice(Graph& g, const Value& x, i64 axis, i64 begin, i64 end) {
  return g.node("Slice", {x, g.integers({begin}), g.integers({end}), g.integers({axis})});
}

Value size_of_axis(Graph& g, const Value& x, i64 axis) { return g.node("Shape", {x}, {{"start", axis}, {"end", axis + 1}}); }

Value reshape(Graph& g, const Value& x, const std::vector<i64>& shape) { return g.node("Reshape", {x, g.integers(shape)}); }

}  // namespace spillway::models::onnx
