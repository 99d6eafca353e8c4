#include "models/onnx/attention.h"

#include <fmt/format.h>

#include <limits>

#include "models/families/style.h"
#include "models/rotary.h"

namespace spillway::models::onnx {
namespace {

ElementType type_of(const Graph& g) { return g.is_half() ? ElementType::f16 : ElementType::f32; }

Value axis_between(Graph& g, const Value& begin_1, const Value& end_1) {
  const auto scalar = [&](const Value& x) { return g.node("Squeeze", {x, g.integers({0})}); };
  return g.node("Range", {scalar(begin_1), scalar(end_1), g.integer(1)});
}

// Reshapes [N, heads D], whose rows are all positions of a batch, to [B, heads, T, D].
Value heads_of(Graph& g, const Positions& positions, const Value& x, i64 heads, i64 head_dim) {
  const Value shape = g.node("Concat", {positions.rows_and_length, g.integers({heads, head_dim})}, {{"axis", i64{0}}});
  return g.node("Transpose", {g.node("Reshape", {x, shape})}, {{"perm", std::vector<i64>{0, 2, 1, 3}}});
}

// Rotates x[B, H, T, D]: the pairs (i, i + R/2) of the first R elements of each head or, with `neighbours`, the pairs (2i, 2i + 1).
Value turned_by(Graph& g, const Value& x, const std::pair<Value, Value>& turns, i64 elements, i64 head_dim, bool neighbours) {
  const auto& [cosines, sines] = turns;
  const auto every_other = [&](i64 from) {
    return g.node("Slice", {x, g.integers({from}), g.integers({elements}), g.integers({3}), g.integers({2})});
  };
  const Value first = neighbours ? every_other(0) : slice(g, x, 3, 0, elements / 2);
  const Value second = neighbours ? every_other(1) : slice(g, x, 3, elements / 2, elements);
  std::vector<Value> parts = {g.node("Sub", {g.node("Mul", {first, cosines}), g.node("Mul", {second, sines})}),
                              g.node("Add", {g.node("Mul", {second, cosines}), g.node("Mul", {first, sines})})};
  if (neighbours) {  // [B, H, T, R / 2] twice become [B, H, T, R / 2, 2] and then [B, H, T, R]
    for (Value& part : parts) part = g.node("Unsqueeze", {part, g.integers({4})});
    const Value pairs = g.node("Concat", parts, {{"axis", i64{4}}});
    parts = {g.node("Reshape", {pairs, g.integers({0, 0, 0, elements})})};
  }
  if (elements < head_dim) parts.push_back(slice(g, x, 3, elements, head_dim));
  return parts.size() == 1 ? parts.front() : g.node("Concat", parts, {{"axis", i64{3}}});
}

Value with_past(Graph& g, const Value& now, i64 layer, const char* which) {
  const Value all = g.node("Concat", {fmt::format("past_key_values.{}.{}", layer, which), now}, {{"axis", i64{2}}});
  g.name(all, fmt::format("present.{}.{}", layer, which));
  return all;
}

}  // namespace

Positions::Positions(Graph& g) : positions_BT_("position_ids") {
  const ModelConfig& c = g.config();
  g.input("input_ids", ElementType::int64, {"batch", "sequence"});
  g.input("attention_mask", ElementType::int64, {"batch", "all"});
  g.input(positions_BT_, ElementType::int64, {"batch", "sequence"});
  for (i64 layer = 0; layer < c.layers; ++layer) {
    for (const char* which : {"key", "value"}) {
      g.input(fmt::format("past_key_values.{}.{}", layer, which), type_of(g), {"batch", c.kv_heads, "past", c.head_dim});
      g.output(fmt::format("present.{}.{}", layer, which), type_of(g), {"batch", c.kv_heads, "all", c.head_dim});
    }
  }
  ids_N = reshape(g, "input_ids", {-1});
  positions_N = reshape(g, positions_BT_, {-1});
  rows_and_length = g.node("Shape", {"input_ids"});
  length_ = size_of_axis(g, "input_ids", 1);
  all_ = g.node("Add", {size_of_axis(g, "past_key_values.0.key", 2), length_});
  attended_BS_ = cast(g, reshape(g, "attention_mask", {0, 1, 1, 1, -1}), ElementType::boolean);
}

Value Positions::mask(Graph& g, i64 window) {
  const auto [at, is_new] = masks_.emplace(window, "");
  if (!is_new) return at->second;
  const Value queries_T1 = g.node("Unsqueeze", {axis_between(g, g.node("Sub", {all_, length_}), all_), g.integers({1})});
  const Value keys_S = axis_between(g, g.integers({0}), all_);
  Value seen = g.node("LessOrEqual", {keys_S, queries_T1});
  if (window > 0) seen = g.node("And", {seen, g.node("Greater", {keys_S, g.node("Sub", {queries_T1, g.integer(window)})})});
  at->second = g.node("Where", {g.node("And", {seen, attended_BS_}), g.number_f32(0), g.number_f32(std::numeric_limits<float>::lowest())});
  return at->second;
}

std::pair<Value, Value> Positions::turns(Graph& g, i64 layer) {
  const Rotary rotary = rotary_of(g.config(), layer);
  const auto [at, is_new] = turns_.emplace(rotary.frequencies, std::pair<Value, Value>());
  if (!is_new) return at->second;
  const Value positions = cast(g, g.node("Unsqueeze", {positions_BT_, g.integers({1, 3})}), ElementType::f32);
  const Value angles = g.node("Mul", {positions, g.numbers_f32(rotary.frequencies, {std::ssize(rotary.frequencies)})});
  const auto of = [&](const char* function) {
    const Value value = g.node(function, {angles});
    return narrowed(g, rotary.scaling == 1 ? value : g.node("Mul", {value, g.number_f32(rotary.scaling)}));
  };
  at->second = {of("Cos"), of("Sin")};
  return at->second;
}

Value attention(Graph& g, Positions& positions, const Queries& queries, i64 layer, double scale, bool turned) {
  const ModelConfig& c = g.config();
  const i64 D = c.head_dim, group = c.heads / c.kv_heads;
  Value q = heads_of(g, positions, queries.q, c.heads, D), k = heads_of(g, positions, queries.k, c.kv_heads, D);
  if (turned && c.is_rotated(layer)) {
    const bool neighbours = style_of(c).rope_pairs;
    const std::pair<Value, Value> turns = positions.turns(g, layer);
    const i64 elements = c.rotary_dim > 0 ? c.rotary_dim : D;
    q = turned_by(g, q, turns, elements, D, neighbours);
    k = turned_by(g, k, turns, elements, D, neighbours);
  }
  k = with_past(g, k, layer, "key");
  const Value v = with_past(g, heads_of(g, positions, queries.v, c.kv_heads, D), layer, "value");

  // Query heads that share keys are adjacent: [B, K, G, T, D] is multiplied by [B, K, 1, D, S].
  const Value q_BKGTD = g.node("Mul", {reshape(g, q, {0, c.kv_heads, group, -1, D}), g.number(scale)});
  const Value k_BK1DS = g.node("Unsqueeze", {g.node("Transpose", {k}, {{"perm", std::vector<i64>{0, 1, 3, 2}}}), g.integers({2})});
  const Value scores = softcapped(g, wide(g, g.node("MatMul", {q_BKGTD, k_BK1DS})), c.attention_softcap);
  const Value masked = g.node("Add", {scores, positions.mask(g, c.is_windowed(layer) ? c.window : 0)});
  const Value shares = narrowed(g, g.node("Softmax", {masked}, {{"axis", i64{-1}}}));
  const Value mixed_BKGTD = g.node("MatMul", {shares, g.node("Unsqueeze", {v, g.integers({2})})});
  return reshape(g, g.node("Transpose", {mixed_BKGTD}, {{"perm", std::vector<i64>{0, 3, 1, 2, 4}}}), {-1, c.heads * D});
}

}  // namespace spillway::models::onnx
