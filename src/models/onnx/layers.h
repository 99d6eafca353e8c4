// What graphs of several models share: layers as nodes of operator set 17. Rows are [N, C]: all positions of all rows of a batch.
#pragma once
#include "models/onnx/graph.h"

namespace spillway::models::onnx {

/// x[N, I] by the weight NAME.weight, [O, I], or [I, O] where `inputs_first`, and NAME.bias where the model has one.
Value linear(Graph& graph, const Value& x_NI, const std::string& name, bool inputs_first = false);
/// By a weight [O, I] of another name.
Value product(Graph& graph, const Value& x_NI, const std::string& weight_OI);

Value layer_norm(Graph& graph, const Value& x, const std::string& name, double eps);
/// In f32, the gain too: the weight plus `gain_offset`.
Value rms_norm(Graph& graph, const Value& x, const std::string& name, double eps, double gain_offset);

Value gelu_tanh(Graph& graph, const Value& x);
Value gelu_erf(Graph& graph, const Value& x);
Value silu(Graph& graph, const Value& x);
/// tanh(x / cap) cap; x itself where cap is 0. Of f32.
Value softcapped(Graph& graph, const Value& x, double cap);

/// To f32, and from it to the graph's type: no node where that is f32.
Value wide(Graph& graph, const Value& x);
Value narrowed(Graph& graph, const Value& x);
Value cast(Graph& graph, const Value& x, ElementType type);

Value slice(Graph& graph, const Value& x, i64 axis, i64 begin, i64 end);
/// The size [1] of an axis.
Value size_of_axis(Graph& graph, const Value& x, i64 axis);
/// `shape`: sizes, -1 at most once; 0 keeps x's own.
Value reshape(Graph& graph, const Value& x, const std::vector<i64>& shape);

}  // namespace spillway::models::onnx
