#include "kernels/sequence/cudnn_graph_cuda.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace spillway::kernels::cudnn {
namespace {

using Extents4 = std::vector<i64>;

Data data_of(DType dtype) { return dtype == DType::bf16 ? Data::bf16 : Data::f16; }

Extents4 in_order(const Extents4& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

// Values of cuDNN's enum cudnnBackendKnobType_t.
enum Knob : i64 { kStages = 14, kKernelConfig = 24, kTileCgaM = 27, kStreamK = 38, kTileM = 40, kTileN = 41 };

// Returns the engine for the backward graph on Blackwell. It is fixed, as in cudnn-frontend
// 1.32, since no heuristic tells which configurations of an engine add in a fixed order.
Engine ordered_engine(i64 version) {
  if (version < 92300) return {5, {{kKernelConfig, 31}, {kStages, 2}}};
  return {5, {{kTileM, 3}, {kTileN, 2}, {kKernelConfig, 2}, {kStreamK, 0}, {kTileCgaM, 0}, {kStages, 2}}};
}

bool is_blackwell(int compute_capability) { return compute_capability / 10 == 10; }

}  // namespace

std::string to_string(const Problem& p) {
  return fmt::format("{} {} {} x {} x {}/{} x {}{}", p.backward ? "backward" : "forward", to_string(p.dtype), p.batch, p.length, p.heads,
                     p.kv_heads, p.width, p.causal ? " causal" : "");
}

Layouts contiguous(const Problem& p) {
  const Strides q = {p.length * p.heads * p.width, p.heads * p.width, p.width};
  const Strides k = {p.length * p.kv_heads * p.width, p.kv_heads * p.width, p.width};
  if (!p.backward) return {q, k, k, q, {}, {}, {}, {}};
  return {q, k, k, q, q, q, k, k};
}

Layouts thirds(const Problem& p) {
  Layouts l = contiguous(p);
  l.q = l.k = l.v = {3 * p.length * p.heads * p.width, 3 * p.heads * p.width, p.width};
  if (p.backward) l.dq = l.dk = l.dv = l.q;
  return l;
}

std::string why_not_on(int compute_capability, i64 version) {
  const std::string name = fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
  if (compute_capability < 90) return fmt::format("expected a GPU of compute capability 9.0 (Hopper) or newer, got {}", name);
  if (compute_capability / 10 == 9) return "";
  if (!is_blackwell(compute_capability))
    return fmt::format("expected a GPU of compute capability 9.x or 10.x, on which cuDNN's backward is deterministic, got {}", name);
  constexpr i64 kBlackwell = 91800;
  if (version >= kBlackwell) return "";
  return fmt::format("expected cuDNN {} or newer for a GPU of compute capability {}, got {}", version_text(kBlackwell), name,
                     version_text(version));
}

std::string to_string(const Engine& engine) {
  std::string text = fmt::format("engine {}", engine.index);
  for (const auto& [type, value] : engine.knobs) text += fmt::format(" k{}={}", type, value);
  return text;
}

std::optional<Engine> parse_engine(std::string_view text) {
  const auto take = [&](std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
  };
  const auto number = [&](i64& value) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return problem == std::errc();
  };
  Engine engine;
  if (!take("engine ") || !number(engine.index)) return {};
  while (!text.empty()) {
    auto& [type, value] = engine.knobs.emplace_back();
    if (!take(" k") || !number(type) || !take("=") || !number(value)) return {};
  }
  return engine;
}

// Makes the descriptors of a graph, operation by operation.
struct Graph::Builder {
  const Problem& p;
  const Layouts& layouts;
  std::vector<Descriptor>& parts;
  std::vector<RawDescriptor> operations = {};
  i64 next_virtual = 100;
  const Extents4 scores = {p.batch, p.heads, p.length, p.length}, per_row = {p.batch, p.heads, p.length, 1},
                 of_queries = {p.batch, p.heads, p.length, p.width};

  struct Tensor {
    RawDescriptor raw;
    Data type;
    Extents4 extents;
  };

  Tensor tensor(i64 id, Data type, const Extents4& extents, const Extents4& strides, bool is_virtual, bool by_value = false) {
    const Descriptor& made = parts.emplace_back(Kind::tensor);
    made.set(Attribute::tensor_type, Type::data_type, static_cast<int>(type));
    made.set(Attribute::tensor_dimensions, extents);
    made.set(Attribute::tensor_strides, strides);
    made.set(Attribute::tensor_id, id);
    made.set(Attribute::tensor_alignment, i64{16});
    made.set(Attribute::tensor_is_virtual, is_virtual);
    if (by_value) made.set(Attribute::tensor_is_by_value, true);
    made.finalize();
    return {made.raw(), type, extents};
  }
  Tensor between(Data type, const Extents4& extents) { return tensor(next_virtual++, type, extents, in_order(extents), true); }
  Tensor rows(Id id) { return tensor(static_cast<i64>(id), Data::f32, per_row, in_order(per_row), false); }
  Tensor value(Id id) { return tensor(static_cast<i64>(id), Data::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }
  // Returns the tensor `id`, which is [B, T, H, D], seen as [B, H, T, D].
  Tensor heads(Id id, const Strides& s, i64 count) {
    return tensor(static_cast<i64>(id), data_of(p.dtype), {p.batch, count, p.length, p.width}, {s.batch, s.head, s.row, 1}, false);
  }
  // Returns the tensor `id`, which is [B, T, H, D], seen as [B, H, D, T].
  Tensor turned_heads(Id id, const Strides& s, i64 count) {
    return tensor(static_cast<i64>(id), data_of(p.dtype), {p.batch, count, p.width, p.length}, {s.batch, s.head, 1, s.row}, false);
  }
  // Returns x with its last two axes exchanged.
  Tensor turned(const Tensor& x, Data type, const Extents4& strides) {
    const Extents4& e = x.extents;
    const Tensor y = tensor(next_virtual++, type, {e[0], e[1], e[3], e[2]}, strides, true);
    const Descriptor& operation = parts.emplace_back(Kind::operation_reshape);
    operation.set(Attribute::operation_reshape_x, std::vector<RawDescriptor>{x.raw});
    operation.set(Attribute::operation_reshape_y, std::vector<RawDescriptor>{y.raw});
    return done(operation, y);
  }
  // Stores the descriptor that says what an operation does. The descriptor must live as long as the operation.
  RawDescriptor keep(Descriptor how) {
    how.finalize();
    return parts.emplace_back(std::move(how)).raw();
  }
  Tensor done(const Descriptor& operation, const Tensor& result) {
    operation.finalize();
    operations.push_back(operation.raw());
    return result;
  }

  Tensor pointwise(Pointwise mode, const Tensor& x, const std::optional<Tensor>& b, const Tensor& y, Data math = Data::f32,
                   const std::optional<Tensor>& condition = {}, std::optional<i64> axis = {}) {
    Descriptor how(Kind::pointwise);
    how.set(Attribute::pointwise_mode, Type::pointwise_mode, static_cast<int>(mode));
    how.set(Attribute::pointwise_math_precision, Type::data_type, static_cast<int>(math));
    if (axis) how.set(Attribute::pointwise_axis, *axis);
    const RawDescriptor kept = keep(std::move(how));
    const Descriptor& operation = parts.emplace_back(Kind::operation_pointwise);
    operation.set(Attribute::operation_pointwise, std::vector<RawDescriptor>{kept});
    operation.set(Attribute::operation_pointwise_x, std::vector<RawDescriptor>{x.raw});
    if (b) operation.set(Attribute::operation_pointwise_b, std::vector<RawDescriptor>{b->raw});
    if (condition) operation.set(Attribute::operation_pointwise_t, std::vector<RawDescriptor>{condition->raw});
    operation.set(Attribute::operation_pointwise_y, std::vector<RawDescriptor>{y.raw});
    return done(operation, y);
  }
  Tensor reduce(Reduce how_to, const Tensor& x, const Tensor& y) {
    Descriptor how(Kind::reduction);
    how.set(Attribute::reduction_operator, Type::reduction_operator, static_cast<int>(how_to));
    how.set(Attribute::reduction_type, Type::data_type, static_cast<int>(Data::f32));
    const RawDescriptor kept = keep(std::move(how));
    const Descriptor& operation = parts.emplace_back(Kind::operation_reduction);
    operation.set(Attribute::operation_reduction, std::vector<RawDescriptor>{kept});
    operation.set(Attribute::operation_reduction_x, std::vector<RawDescriptor>{x.raw});
    operation.set(Attribute::operation_reduction_y, std::vector<RawDescriptor>{y.raw});
    return done(operation, y);
  }
  Tensor multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
    Descriptor how(Kind::matmul);
    how.set(Attribute::matmul_type, Type::data_type, static_cast<int>(Data::f32));
    const RawDescriptor kept = keep(std::move(how));
    const Descriptor& operation = parts.emplace_back(Kind::operation_matmul);
    operation.set(Attribute::operation_matmul, std::vector<RawDescriptor>{kept});
    operation.set(Attribute::operation_matmul_a, std::vector<RawDescriptor>{a.raw});
    operation.set(Attribute::operation_matmul_b, std::vector<RawDescriptor>{b.raw});
    operation.set(Attribute::operation_matmul_c, std::vector<RawDescriptor>{c.raw});
    return done(operation, c);
  }

  // Replaces the scores of keys that the causal mask hides by the lowest number.
  Tensor masked(const Tensor& x) {
    if (!p.causal) return x;
    const Tensor row = pointwise(Pointwise::index, x, {}, between(Data::int32, scores), Data::f32, {}, 2);
    const Tensor column = pointwise(Pointwise::index, x, {}, between(Data::int32, scores), Data::f32, {}, 3);
    const Tensor seen = pointwise(Pointwise::greater_equal, row, column, between(Data::boolean, scores), Data::boolean);
    return pointwise(Pointwise::select, x, value(Id::lowest), between(Data::f32, scores), Data::f32, seen);
  }

  void forward() {
    const Data type = data_of(p.dtype);
    const Tensor q = heads(Id::q, layouts.q, p.heads), k = turned_heads(Id::k, layouts.k, p.kv_heads),
                 v = heads(Id::v, layouts.v, p.kv_heads);
    const Tensor product = multiply(q, k, between(Data::f32, scores));
    const Tensor score = masked(pointwise(Pointwise::mul, product, value(Id::scale), between(Data::f32, scores)));
    const Tensor top = reduce(Reduce::max, score, between(Data::f32, per_row));
    const Tensor below = pointwise(Pointwise::sub, score, top, between(Data::f32, scores));
    const Tensor e = pointwise(Pointwise::exp, below, {}, between(Data::f32, scores));
    const Tensor total = reduce(Reduce::add, e, between(Data::f32, per_row));
    const Tensor log = pointwise(Pointwise::log, total, {}, between(Data::f32, per_row));
    pointwise(Pointwise::add, top, log, rows(Id::lse));
    const Tensor probability = pointwise(Pointwise::div, e, total, between(type, scores));
    multiply(probability, v, heads(Id::out, layouts.out, p.heads));
  }

  // Computes left^T right for each query head. The results of the query heads that share a key/value head are added.
  void key_gradient(const Tensor& left, const Tensor& right, const Tensor& result) {
    const Data type = data_of(p.dtype);
    const Tensor turned_left = turned(left, type, {p.heads * p.length * p.length, p.length * p.length, 1, p.length});
    if (p.heads == p.kv_heads) {
      multiply(turned_left, right, result);
    } else {
      reduce(Reduce::add, multiply(turned_left, right, between(type, of_queries)), result);
    }
  }

  void backward() {
    const Tensor dout = heads(Id::dout, layouts.dout, p.heads), q = heads(Id::q, layouts.q, p.heads);
    const Tensor k = turned_heads(Id::k, layouts.k, p.kv_heads), v = turned_heads(Id::v, layouts.v, p.kv_heads);
    const Tensor product = pointwise(Pointwise::mul, dout, heads(Id::out, layouts.out, p.heads), between(Data::f32, of_queries));
    const Tensor dot = reduce(Reduce::add, product, between(Data::f32, per_row));
    const Tensor delta = pointwise(Pointwise::mul, dot, value(Id::one), rows(Id::delta));

    const Tensor scale = value(Id::scale);
    const Tensor score = pointwise(Pointwise::mul, multiply(q, k, between(Data::f32, scores)), scale, between(Data::f32, scores));
    const Tensor below = masked(pointwise(Pointwise::sub, score, rows(Id::lse), between(Data::f32, scores)));
    const Tensor probability = pointwise(Pointwise::exp, below, {}, between(Data::f32, scores));
    key_gradient(probability, dout, heads(Id::dv, layouts.dv, p.kv_heads));

    const Tensor dp = multiply(dout, v, between(Data::f32, scores));
    const Tensor less = pointwise(Pointwise::sub, dp, delta, between(Data::f32, scores));
    const Tensor times = pointwise(Pointwise::mul, less, probability, between(Data::f32, scores));
    const Tensor ds = pointwise(Pointwise::mul, times, scale, between(Data::f32, scores));
    key_gradient(ds, q, heads(Id::dk, layouts.dk, p.kv_heads));

    const Tensor keys = turned(k, data_of(p.dtype), {layouts.k.batch, layouts.k.head, layouts.k.row, 1});
    multiply(ds, keys, heads(Id::dq, layouts.dq, p.heads));
  }
};

Graph::Graph(const Problem& problem, const Layouts& layouts, const Target& target)
    : problem_(problem), target_(target), graph_(Kind::operation_graph) {
  Builder builder{problem, layouts, parts_};
  problem.backward ? builder.backward() : builder.forward();
  graph_.set(Attribute::graph_operations, builder.operations);
  if (target.handle) graph_.set_handle(Attribute::graph_handle, target.handle);
  graph_.finalize();
}

std::vector<Engine> Graph::engines() const {
  if (problem_.backward && is_blackwell(target_.compute_capability)) return {ordered_engine(library().version_number())};
  const Descriptor heuristics(Kind::engine_heuristics);
  heuristics.set(Attribute::heuristics_graph, graph_);
  heuristics.set(Attribute::heuristics_mode, Type::heuristics_mode, static_cast<int>(Heuristics::a));
  if (target_.description) heuristics.set(Attribute::heuristics_device, std::vector<RawDescriptor>{target_.description});
  if (!heuristics.try_finalize()) return {};
  constexpr i64 kMostEngines = 8, kMostKnobs = 64;
  std::vector<Engine> all;
  for (const Descriptor& config : heuristics.descriptors(Attribute::heuristics_results, Kind::engine_config, kMostEngines)) {
    const std::vector<Descriptor> engine = config.descriptors(Attribute::config_engine, Kind::engine, 1);
    require(engine.size() == 1, "[cudnn] expected each of cuDNN's engine configurations to have exactly one engine");
    Engine& one = all.emplace_back(Engine{engine[0].number(Attribute::engine_index), {}});
    for (const Descriptor& knob : config.descriptors(Attribute::config_knob_choices, Kind::knob_choice, kMostKnobs))
      one.knobs.emplace_back(knob.enumerator(Attribute::knob_type, Type::knob_type), knob.number(Attribute::knob_value));
  }
  return all;
}

std::optional<Descriptor> Graph::config(const Engine& engine) const {
  const Descriptor one(Kind::engine);
  one.set(Attribute::engine_graph, graph_);
  one.set(Attribute::engine_index, engine.index);
  if (target_.description) one.set(Attribute::engine_device, std::vector<RawDescriptor>{target_.description});
  if (!one.try_finalize()) return {};
  std::vector<Descriptor> choices;
  std::vector<RawDescriptor> raw;
  for (const auto& [type, value] : engine.knobs) {
    const Descriptor& choice = choices.emplace_back(Kind::knob_choice);
    choice.set(Attribute::knob_type, Type::knob_type, static_cast<int>(type));
    choice.set(Attribute::knob_value, value);
    if (!choice.try_finalize()) return {};
    raw.push_back(choice.raw());
  }
  Descriptor config(Kind::engine_config);
  config.set(Attribute::config_engine, one);
  if (!raw.empty()) config.set(Attribute::config_knob_choices, raw);
  if (!config.try_finalize()) return {};
  return config;
}

i64 config_workspace_bytes(const Descriptor& config) { return config.number(Attribute::config_workspace_bytes); }

i64 delta_bytes(const Problem& p) { return p.backward ? round_up(p.batch * p.heads * p.length * 4, 256) : 0; }

i64 workspace_bound(const Problem& p) {
  constexpr i64 kOfEngine = 4096;  // the bytes that an engine may need besides the counted ones; the most seen was 256
  if (!p.backward) return kOfEngine;
  const i64 rows = p.batch * p.heads, length = round_up(p.length, 128);
  const i64 scores = 2 * rows * length * length, per_head = p.heads == p.kv_heads ? 0 : 2 * 4 * rows * p.length * p.width;
  return kOfEngine + scores + per_head + delta_bytes(p);
}

}  // namespace spillway::kernels::cudnn
