// Attention with a key/value cache as ONNX nodes. Shape letters: B = batch size, T = new positions, S = all positions, H = heads, K =
// key/value heads, G = H / K, D = head width, N = B T.
#pragma once
#include "models/onnx/layers.h"

namespace spillway::models::onnx {

/// The inputs of a language model's graph, and the values that are computed from these inputs once and used by all layers.
class Positions {
 public:
  /// Declares the inputs input_ids [B, T], attention_mask [B, S] (0: a position that no query sees), position_ids [B, T] and, for each
  /// layer, past_key_values.N.key and .value [B, K, S - T, D], and the outputs present.N.key and .value. The names are those of
  /// transformers' exporters.
  explicit Positions(Graph& graph);

  /// The values are token ids [N], positions [N], and a tensor [2] with B (batch size) and T (positions).
  Value ids_N, positions_N, rows_and_length;
  /// Returns the attention mask [B, 1, 1, T, S] in f32: 0, or the lowest number where a query does not see a key. `window` is the number of
  /// positions that a query sees; 0 means all positions up to its own.
  Value mask(Graph& graph, i64 window);
  /// Returns cosines and sines [B, 1, T, R / 2] of a layer's rotation angles in the graph's type. R is the number of rotated elements.
  std::pair<Value, Value> turns(Graph& graph, i64 layer);

 private:
  Value positions_BT_, attended_BS_, length_, all_;  // the values length_ and all_ are T and S, each of shape [1]
  std::map<i64, Value> masks_;
  std::map<std::vector<double>, std::pair<Value, Value>> turns_;
};

struct Queries {
  Value q, k, v;  // shapes [N, H D], [N, K D], [N, K D]; after a norm of each head, q and k have the shapes [N, H, D] and [N, K, D]
};

/// Adds attention with result [N, H D]. Also defines the layer's outputs present.N.key and
/// .value [B, K, S, D]. With `turned`, queries and keys are first rotated by their positions.
Value attention(Graph& graph, Positions& positions, const Queries& queries, i64 layer, double scale, bool turned);

}  // namespace spillway::models::onnx
