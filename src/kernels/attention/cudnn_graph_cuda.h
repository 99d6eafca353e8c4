// Attention as graphs of cuDNN: the operations, the engine that computes them, and its plan. The graphs have the form that cudnn-frontend
// gives its SDPA nodes, because the library recognises them by their form. Backward writes dq as one product. In this form its sums have
// the same order in every run: for it Hopper's engines keep all score gradients in the workspace (2 bytes each), and on Blackwell an engine
// is requested that adds in the order of its tiles. Included only by kernels/*_cuda.*.
#pragma once
#include <array>
#include <compare>
#include <optional>

#include "kernels/attention/cudnn_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels::cudnn {

/// Elements from one batch row, position and head to the next in a [B, T, H, D] view.
struct Strides {
  i64 batch, row, head;
  auto operator<=>(const Strides&) const = default;
};

/// An attention problem with as many keys as queries. The legend is that of attention.h.
struct Problem {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;  // bf16 or f16
  bool causal, backward;
  auto operator<=>(const Problem&) const = default;
};
/// Returns a text such as "backward bf16 4 x 1024 x 12/12 x 64 causal".
std::string to_string(const Problem& problem);

/// The strides of a problem's tensors. Only backward has dout, dq, dk and dv.
struct Layouts {
  Strides q, k, v, out, dout, dq, dk, dv;
  auto operator<=>(const Layouts&) const = default;
};
/// Return the layouts of contiguous tensors, and those with q, k and v as thirds of one tensor and their gradients as thirds of another.
Layouts contiguous(const Problem& problem);
Layouts thirds(const Problem& problem);

/// The GPU that a plan is made for, given by its handle or by a description (a cudnnBackendDescriptor of Kind::device_properties).
struct Target {
  int compute_capability = 0;  // compute capability times 10: 90 for Hopper
  Handle handle = nullptr;
  RawDescriptor description = nullptr;
};

/// Returns why there is no deterministic backward on such a GPU; empty if there is one.
std::string why_not_on(int compute_capability, i64 version);

/// An engine and its knobs, by the backend's numbers, which may differ in another version.
struct Engine {
  i64 index = 0;
  std::vector<std::pair<i64, i64>> knobs;  // pairs of knob type and value
  bool operator==(const Engine&) const = default;
};
/// Convert an engine to a text such as "engine 6 k2=5 k13=1" and back.
std::string to_string(const Engine& engine);
std::optional<Engine> parse_engine(std::string_view text);

/// The tensors passed to a graph. The f32 numbers are scale, lowest (below every score) and one; delta[B, H, T] is scratch memory of
/// backward.
enum class Id : i64 { q = 1, k, v, out, lse, dout, dq, dk, dv, delta, scale, lowest, one };

/// The connected operations of a problem.
class Graph {
 public:
  Graph(const Problem& problem, const Layouts& layouts, const Target& target);

  /// Returns the engines to try, best first: the choice of the library's heuristics, or for backward on Blackwell the only deterministic
  /// engine. Empty if the library knows none.
  std::vector<Engine> engines() const;
  /// Returns a finalized engine configuration, or nothing if the library rejects it.
  std::optional<Descriptor> config(const Engine& engine) const;
  const Target& target() const { return target_; }

 private:
  struct Builder;
  const Problem problem_;
  const Target target_;
  std::vector<Descriptor> parts_;  // in the order of making: a part precedes those that are made of it
  Descriptor graph_;
};

/// Returns the workspace that the engine itself requests; backward needs delta_bytes() besides.
i64 config_workspace_bytes(const Descriptor& config);
i64 delta_bytes(const Problem& problem);  // size of the scratch tensor delta; a multiple of 256

/// Returns a bound of the workspace, delta included, that holds for every engine on every accepted GPU and version; memory plans use it
/// where no library can be asked. It consists of the score gradients at 2 bytes each, with lengths rounded up to a multiple of 128, and, if
/// there are fewer key/value heads than query heads, a gradient of keys and of values for every query head at 4 bytes an element.
i64 workspace_bound(const Problem& problem);

}  // namespace spillway::kernels::cudnn
