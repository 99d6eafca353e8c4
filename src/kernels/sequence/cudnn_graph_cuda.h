// Attention as graphs of cuDNN: the operations, the engine that computes them, and its plan. The graphs have the structure that
// cudnn-frontend gives its SDPA nodes, because cuDNN recognises attention by this structure.
// The backward graph computes dq as one product, so that its sums have the same order in every run. For such a graph Hopper's engines keep
// all score gradients in the workspace (2 bytes each). On Blackwell we request an engine that adds in the order of its tiles. Included only
// by kernels/*/*_cuda.*.
#pragma once
#include <array>
#include <compare>
#include <optional>

#include "kernels/sequence/cudnn_cuda.h"
#include "tensor/dtype.h"

namespace spillway::kernels::cudnn {

/// The strides of a [B, T, H, D] view, in elements: from one sequence of the batch, position and head to the next.
struct Strides {
  i64 batch, row, head;
  auto operator<=>(const Strides&) const = default;
};

/// An attention problem with as many keys as queries. attention.h explains the letters of the dimensions.
struct Problem {
  i64 batch, length, heads, kv_heads, width;
  DType dtype;  // the type of the views, bf16 or f16
  bool causal, backward;
  auto operator<=>(const Problem&) const = default;
};
/// Returns a text such as "backward bf16 4 x 1024 x 12/12 x 64 causal".
std::string to_string(const Problem& problem);

/// The strides of a problem's tensors. Only a backward problem has dout, dq, dk and dv.
struct Layouts {
  Strides q, k, v, out, dout, dq, dk, dv;
  auto operator<=>(const Layouts&) const = default;
};
/// contiguous() returns the layouts of tensors that are all contiguous. thirds() returns
/// those for q, k and v as thirds of one tensor, with dq, dk and dv as thirds of another.
Layouts contiguous(const Problem& problem);
Layouts thirds(const Problem& problem);

/// The GPU that a plan is made for. The GPU is given by a handle, or, where there
/// is none, by a description: a cudnnBackendDescriptor of Kind::device_properties.
struct Target {
  int compute_capability = 0;  // the compute capability times 10: 90 for Hopper
  Handle handle = nullptr;
  RawDescriptor description = nullptr;
};

/// Returns why cuDNN's backward pass is not deterministic, or not available, on a GPU of this compute capability with this version. Returns
/// an empty string if it is deterministic.
std::string why_not_on(int compute_capability, i64 version);

/// An engine and its knobs, by cuDNN's numbers. These numbers may differ between versions of cuDNN.
struct Engine {
  i64 index = 0;
  std::vector<std::pair<i64, i64>> knobs;  // the knobs as pairs of type and value
  bool operator==(const Engine&) const = default;
};
/// to_string() and parse_engine() convert between an engine of cuDNN and a text such as "engine 6 k2=5 k13=1".
std::string to_string(const Engine& engine);
std::optional<Engine> parse_engine(std::string_view text);

/// The tensors that are passed to a graph. Three of them are single f32 numbers: scale, lowest (a number below every score) and one.
/// delta[B, H, T] is scratch memory of the backward graph.
enum class Id : i64 { q = 1, k, v, out, lse, dout, dq, dk, dv, delta, scale, lowest, one };

/// The operations of an attention problem, connected to a graph.
class Graph {
 public:
  Graph(const Problem& problem, const Layouts& layouts, const Target& target);

  /// Returns the engines to try, best first. cuDNN's heuristics choose them, except for the backward graph on Blackwell,
  /// where the list is the one engine that is deterministic. The list is empty if the heuristics know no engine.
  std::vector<Engine> engines() const;
  /// Returns a finalized engine configuration, or nothing if cuDNN rejects it.
  std::optional<Descriptor> config(const Engine& engine) const;
  const Target& target() const { return target_; }

 private:
  struct Builder;
  const Problem problem_;
  const Target target_;
  // the parts of the graph in the order in which they were made; a part comes before those that refer to it
  std::vector<Descriptor> parts_;
  Descriptor graph_;
};

/// Returns the workspace, in bytes, that the engine itself requests. The backward graph needs delta_bytes() in addition.
i64 config_workspace_bytes(const Descriptor& config);
i64 delta_bytes(const Problem& problem);  // returns the size of delta for backward, a multiple of 256; 0 for forward

/// Returns an upper bound of the workspace in bytes, including delta, that holds for every engine on every accepted GPU and
/// version. Memory plans use this bound, because they are also made on machines without cuDNN. For the backward pass the bound
/// counts the score gradients at 2 bytes each, with lengths rounded up to a multiple of 128. If there are fewer key/value
/// heads than query heads, it also counts a gradient of keys and one of values for every query head, at 4 bytes an element.
i64 workspace_bound(const Problem& problem);

}  // namespace spillway::kernels::cudnn
