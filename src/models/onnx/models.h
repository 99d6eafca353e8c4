// Builds the ONNX graphs of models from their configurations. Shape letters: B = batch size, T = positions, C = width, N = B T, V =
// vocabulary.
#pragma once
#include "models/onnx/layers.h"

namespace spillway::models::onnx {

/// add_gpt2() and add_decoder() add the graph of a language model, from ids and a key/value cache (attention.h) to `logits` [B, T, V],
/// f32.
void add_gpt2(Graph& graph);
void add_decoder(Graph& graph);
/// Adds a mixture of experts: for each token the weighted sum of the chosen experts' MLPs, [N, C]. `name` is the prefix of the router's and
/// experts' parameters.
Value experts(Graph& graph, const Value& x_NC, const std::string& name);
/// Adds the graph of an image model, from `pixel_values` [images, channels, height, width] to `logits` [images, classes], f32.
void add_image_model(Graph& graph);

}  // namespace spillway::models::onnx
