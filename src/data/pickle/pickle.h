// What a pickle of Python's says (protocols 2 to 5; https://docs.python.org/3/library/pickletools.html lists the opcodes), as a tree that
// is read and never run: a call is a node that names what would be called, and nothing is imported, made or executed. An untrusted input:
// every count is checked against the bytes that are left, nothing recurses, and a tree has at most kMostPickleNodes nodes, however it is
// shared or goes in circles.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data {

inline constexpr size_t kMostPickleNodes = size_t{1} << 22;  // a hundred times what a model of 100,000 tensors has

using PickleRef = u32;  // of Pickle::at

struct PickleNode {
  enum class Kind : u8 { none, boolean, integer, real, text, bytes, list, tuple, dict, set, global, persistent, object };
  Kind kind = Kind::none;
  i64 integer = 0;  // boolean too
  double real = 0;
  std::string text;  // of text and bytes; of a global "torch._utils._rebuild_tensor_v2"; of an integer beyond 64 bits its bytes
  /// Of a list, tuple and set its elements; of a dict key, value, key, value ..; of a persistent its id. An object is the call of items[0]
  /// with items[1]; what was put into it afterwards is in `entries` (as of a dict, or elements) and `state`.
  std::vector<PickleRef> items;
  std::vector<PickleRef> entries;
  std::vector<PickleRef> state;  // none or one
};

class Pickle {
 public:
  /// `where` names the bytes in messages. Throws Error(data), with the byte at which they go wrong.
  Pickle(std::span<const std::byte> bytes, const std::string& where);

  PickleRef root() const { return root_; }
  const PickleNode& at(PickleRef ref) const { return nodes_[ref]; }
  const std::vector<PickleNode>& nodes() const { return nodes_; }

 private:
  friend class PickleMachine;
  std::vector<PickleNode> nodes_;
  PickleRef root_ = 0;
};

}  // namespace spillway::data
