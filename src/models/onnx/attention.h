// Attention with a key/value cache as nodes. Legend: B = rows, T = new positions, S = all positions, H = heads, K = key/value heads, G = H
// / K, D = head width, N = B T.
#pragma once
#include "models/onnx/layers.h"

namespace spillway::models::onnx {

/// What all layers of a language model read: its inputs, and what is made of them once.
class Positions {
 public:
  /// Declares input_ids [B, T], attention_mask [B, S] (0: a position that nobody sees), position_ids [B, T] and, of each layer,
  /// past_key_values.N.key and .value [B, K, S - T, D]: the names that transformers' exporters use.
  explicit Positions(Graph& graph);

  /// [N]; [2]: B and T.
  Value ids_N, positions_N, rows_and_length;
  /// [B, 1, 1, T, S], f32: 0, or the lowest number where a query does not see a key. `window`: of positions seen, 0: all before it.
  Value mask(Graph& graph, i64 window);
  /// Cosines and sines [B, 1, T, R / 2] of a layer's angles, in the graph's type.
  std::pair<Value, Value> turns(Graph& graph, i64 layer);

 private:
  Value positions_BT_, attended_BS_, length_, all_;  // the last two: T and S, [1]
  std::map<i64, Value> masks_;
  std::map<std::vector<double>, std::pair<Value, Value>> turns_;
};

struct Queries {
  Value q, k, v;  // [N, H D], [N, K D], [N, K D], or with the heads' norms before them [N, H, D]
};

/// [N, H D] of it; declares the layer's outputs present.N.key and .value [B, K, S, D]. `turned`: rotary positions.
Value attention(Graph& graph, Positions& positions, const Queries& queries, i64 layer, double scale, bool turned);

}  // namespace spillway::models::onnx
