// Which nodes a model is made of, by its configuration. Legend: B = rows, T = positions, C = width, N = B T, V = vocabulary.
#pragma once
#include "models/onnx/layers.h"

namespace spillway::models::onnx {

/// From ids and a key/value cache (attention.h) to `logits` [B, T, V], f32.
void add_gpt2(Graph& graph);
void add_decoder(Graph& graph);
/// Each token's sum of some experts' MLPs, [N, C], of `name`'s router and experts.
Value experts(Graph& graph, const Value& x_NC, const std::string& name);
/// From `pixel_values` [images, channels, height, width] to `logits` [images, classes], f32.
void add_image_model(Graph& graph);

}  // namespace spillway::models::onnx
