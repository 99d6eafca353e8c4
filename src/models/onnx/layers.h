// Layers as ONNX nodes of operator set 17, shared by the graphs of several models. Activations are [N, C], where N counts all positions of
// all sequences of a batch.
#pragma once
#include "models/onnx/graph.h"

namespace spillway::models::onnx {

/// Multiplies x[N, I] by the weight NAME.weight, [O, I] or, with `inputs_first`, [I, O], and adds NAME.bias if the model has one.
Value linear(Graph& graph, const Value& x_NI, const std::string& name, bool inputs_first = false);
/// Adds the product of x[N, I] and the transposed weight [O, I] of the parameter `name`. The result is [N, O].
Value product(Graph& graph, const Value& x_NI, const std::string& weight_OI);

/// Computes a layer norm with the bias NAME.bias if the model has one.
Value layer_norm(Graph& graph, const Value& x, const std::string& name, double eps);
/// Computes an RMS norm in f32. The gain is the weight plus `gain_offset`.
Value rms_norm(Graph& graph, const Value& x, const std::string& name, double eps, double gain_offset);

Value gelu_tanh(Graph& graph, const Value& x);
Value gelu_erf(Graph& graph, const Value& x);
Value silu(Graph& graph, const Value& x);
/// Returns tanh(x / cap) * cap for an f32 value, and x itself if cap is 0.
Value softcapped(Graph& graph, const Value& x, double cap);

/// wide() converts a value of the graph's type to f32, and narrowed() converts an f32 value to the graph's type. Neither adds a node if
/// the graph's type is f32.
Value wide(Graph& graph, const Value& x);
Value narrowed(Graph& graph, const Value& x);
Value cast(Graph& graph, const Value& x, ElementType type);

Value slice(Graph& graph, const Value& x, i64 axis, i64 begin, i64 end);
/// Returns the size of an axis, as a tensor of shape [1].
Value size_of_axis(Graph& graph, const Value& x, i64 axis);
/// Reshapes x. In `shape`, -1 (at most once) stands for the remaining size, and 0 keeps the size of that axis of x.
Value reshape(Graph& graph, const Value& x, const std::vector<i64>& shape);

}  // namespace spillway::models::onnx
