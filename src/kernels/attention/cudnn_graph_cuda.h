// Attention as graphs of cuDNN: what is computed, by which engine, and the plan that does it. The graphs are those that cudnn-frontend
// makes of its SDPA nodes: the library knows them by their form. Backward writes dq as one product, the form whose sums have one order on
// every run: Hopper's engines keep the gradients of scores whole in the workspace for it (2 bytes each), of Blackwell's one is asked for
// that adds in the order of its tiles. Included by kernels/*_cuda.* alone.
#pragma once
#include <array>
#include <compare>
#include <optional>

#include "kernels/attention/cudnn_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels::cudnn {

/// Elements from one row, position and head to the next of a [B, T, H, D] view.
struct Strides {
  i64 batch, row, head;
  auto operator<=>(const Strides&) const = default;
};

/// Legend as attention.h, with as many keys as queries.
struct Problem {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;  // bf16 or f16
  bool causal, backward;
  auto operator<=>(const Problem&) const = default;
};
/// "backward bf16 4 x 1024 x 12/12 x 64 causal"
std::string to_string(const Problem& problem);

/// Of a problem's tensors. dout, dq, dk and dv are backward's alone.
struct Layouts {
  Strides q, k, v, out, dout, dq, dk, dv;
  auto operator<=>(const Layouts&) const = default;
};
/// Of contiguous tensors, and with q, k and v as thirds of one and their gradients of another.
Layouts contiguous(const Problem& problem);
Layouts thirds(const Problem& problem);

/// For whom a plan is made: a GPU by its handle, or by a description of it (cudnnBackendDescriptor of Kind::device_properties).
struct Target {
  int compute_capability = 0;  // 90 for Hopper
  Handle handle = nullptr;
  RawDescriptor description = nullptr;
};

/// Why there is no deterministic backward on such a GPU; empty where there is.
std::string why_not_on(int compute_capability, i64 version);

/// An engine and its knobs by the numbers of the backend, which another version may number anew.
struct Engine {
  i64 index = 0;
  std::vector<std::pair<i64, i64>> knobs;  // type, value
  bool operator==(const Engine&) const = default;
};
/// "engine 6 k2=5 k13=1", and back.
std::string to_string(const Engine& engine);
std::optional<Engine> parse_engine(std::string_view text);

/// Tensors by which a graph is fed. f32 numbers: scale, lowest (what no score comes to) and one; delta[B, H, T] is scratch of backward's.
enum class Id : i64 { q = 1, k, v, out, lse, dout, dq, dk, dv, delta, scale, lowest, one };

/// The operations, connected.
class Graph {
 public:
  Graph(const Problem& problem, const Layouts& layouts, const Target& target);

  /// Engines to try, best first: what the library's heuristics say, on Blackwell the only deterministic one. Empty: the library knows none.
  std::vector<Engine> engines() const;
  /// A finished engine configuration; none where the library does not take it.
  std::optional<Descriptor> config(const Engine& engine) const;
  const Target& target() const { return target_; }

 private:
  struct Builder;
  const Problem problem_;
  const Target target_;
  std::vector<Descriptor> parts_;  // in order of making: what they are made of first
  Descriptor graph_;
};

/// What the engine asks for by itself; beside it backward needs delta_bytes().
i64 config_workspace_bytes(const Descriptor& config);
i64 delta_bytes(const Problem& problem);  // a multiple of 256

/// No engine asks for more workspace, delta included, on any GPU and version that is taken: plans of memory count it where nobody can be
/// asked. What it is made of: the gradients of scores at 2 bytes, lengths up to a multiple of 128, and with fewer key/value heads a
/// gradient of keys and of values for every query head, at 4.
i64 workspace_bound(const Problem& problem);

}  // namespace spillway::kernels::cudnn
