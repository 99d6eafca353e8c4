// What a pickle of Python's says (protocols 2 to 5; https://docs.python.org/3/library/pickletools.html lists the opcodes), as a tree that
// is read and never run: a call is a node that names what would be called, and nothing is imported, made or executed. An untrusted input:
// every count is checked against the bytes that are left, nothing recurses, and what is held is charged to the pickle's ReadBudget. Values
// may be shared and may contain themselves: whoever walks the tree bounds the walk, and charges it to the same budget.
#pragma once
#include <bit>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/pickle/read_budget.h"

namespace spillway::data {

using PickleRef = u32;  // of Pickle::at

/// 16 bytes: a checkpoint of 512 ranks has ten million of them. Texts and elements are asked of the Pickle.
struct PickleNode {
  enum class Kind : u8 { none, boolean, integer, big_integer, real, text, bytes, list, tuple, dict, set, global, persistent, object };
  Kind kind = Kind::none;
  u32 count = 0;                                          // of a text its bytes, of a container its elements
  u64 bits = 0;                                           // the number; else where the text or the elements begin
  i64 integer() const { return static_cast<i64>(bits); }  // boolean too
  double real() const { return std::bit_cast<double>(bits); }
};

class Pickle {
 public:
  /// `where` names the bytes in messages. Throws Error(data), with the byte at which they go wrong.
  Pickle(std::vector<std::byte> bytes, const std::string& where);

  PickleRef root() const { return root_; }
  const PickleNode& at(PickleRef ref) const { return nodes_[ref]; }
  size_t node_count() const { return nodes_.size(); }
  /// Every global that it asks for: "torch._utils._rebuild_tensor_v2".
  const std::deque<std::string>& globals() const { return globals_; }

  /// Of a text, bytes and a global; of an integer beyond 64 bits its little-endian bytes; of anything else empty.
  std::string_view text(const PickleNode& node) const;
  /// Of a list, tuple and set its elements; of a dict key, value, key, value ..; of a persistent its id. An object is the call of
  /// items()[0] with items()[1]; what was put into it afterwards is in entries(), as of a dict, or elements, and state().
  std::span<const PickleRef> items(const PickleNode& node) const;
  std::span<const PickleRef> entries(const PickleNode& object) const;
  /// Null: the object was given none.
  const PickleNode* state(const PickleNode& object) const;

  /// Charged with the nodes. Walks charge it, too: a const tree may be walked by one thread at a time.
  ReadBudget& budget() const { return budget_; }

 private:
  friend class PickleMachine;
  static constexpr PickleRef kNone = ~PickleRef{0};

  std::vector<std::byte> bytes_;
  mutable ReadBudget budget_;
  std::deque<PickleNode> nodes_;
  // Elements of all containers. Those of a list, dict or set may grow: they have room for the next power of two. Behind an object's stand
  // its state and the list of what was put into it.
  std::vector<PickleRef> refs_;
  std::deque<std::string> globals_;
  PickleRef root_ = 0;
};

}  // namespace spillway::data
