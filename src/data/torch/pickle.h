// Pickle parses a Python pickle (protocols 2 to 5; https://docs.python.org/3/library/pickletools.html lists the
// opcodes) into a tree without running it. A call becomes a node that names what would be called; nothing is
// imported, created or executed. The input is untrusted: every count is checked against the bytes that are left, the
// code does not recurse, and memory is charged to the pickle's ReadBudget. A value may occur in several places and
// may even contain itself. So code that walks the tree must limit its walk and charge it to the pickle's budget.
#pragma once
#include <bit>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/torch/read_budget.h"

namespace spillway::data {

using PickleRef = u32;  // the index of a node, for Pickle::at()

/// A value in the tree. A node has only 16 bytes, because a checkpoint of 512 ranks has ten million
/// values. Texts and elements are not in the node: Pickle::text() and Pickle::items() return them.
struct PickleNode {
  enum class Kind : u8 { none, boolean, integer, big_integer, real, text, bytes, list, tuple, dict, set, global, persistent, object };
  Kind kind = Kind::none;
  u32 count = 0;                                          // the number of bytes of a text, or of elements of a container
  u64 bits = 0;                                           // a number's value, or where a text's bytes or a container's elements begin
  i64 integer() const { return static_cast<i64>(bits); }  // returns the value of an integer, or of a boolean as 0 or 1
  double real() const { return std::bit_cast<double>(bits); }
};

class Pickle {
 public:
  /// Parses the pickle `bytes`. Error messages call the pickle `where`. Throws
  /// Error(data) with the offset of the opcode at which the error occurs.
  Pickle(std::vector<std::byte> bytes, const std::string& where);

  PickleRef root() const { return root_; }
  const PickleNode& at(PickleRef ref) const { return nodes_[ref]; }
  size_t node_count() const { return nodes_.size(); }
  /// Returns the names of the Python functions and classes that the pickle refers to, such as "torch._utils._rebuild_tensor_v2".
  const std::deque<std::string>& globals() const { return globals_; }

  /// Returns the text of a node that is a text, bytes or a global. For an integer of more
  /// than 64 bits, returns its little-endian bytes. For any other node the result is empty.
  std::string_view text(const PickleNode& node) const;
  /// Returns the elements of a list, tuple or set; the entries of a dict in the order key, value, key, value and so on; or the id of
  /// a persistent reference. An object stands for a call: items()[0] is what is called, and items()[1] holds the arguments. Values
  /// that the pickle added to the object after the call are in entries() (elements, or keys and values as in a dict) and in state().
  std::span<const PickleRef> items(const PickleNode& node) const;
  std::span<const PickleRef> entries(const PickleNode& object) const;
  /// Returns the state that the pickle set on an object, or null if the pickle set none.
  const PickleNode* state(const PickleNode& object) const;

  /// Returns the budget to which the nodes were charged. Code that walks the tree charges
  /// this budget too, so only one thread at a time may walk the tree, even a const one.
  ReadBudget& budget() const { return budget_; }

 private:
  friend class PickleMachine;
  static constexpr PickleRef kNone = ~PickleRef{0};

  std::vector<std::byte> bytes_;
  mutable ReadBudget budget_;
  std::deque<PickleNode> nodes_;
  // The elements of all containers. A list, dict or set may grow, so it has room for the next power of two of
  // elements. An object's elements are followed by its state and by the list of the values that were added to it.
  std::vector<PickleRef> refs_;
  std::deque<std::string> globals_;
  PickleRef root_ = 0;
};

}  // namespace spillway::data
