// PickleTree is the parsed tree of a pickle that PyTorch wrote (data/torch/pickle.h: the pickle is read, never run). It offers the look-ups
// that several readers need. In a malicious pickle, values may refer to each other thousands of times. So every look-up is charged to the
// tree's read budget, and a pickle that exceeds the budget is refused. Because look-ups change the budget, even a const tree must be used
// by one thread only. Errors as in torch_file.h.
#pragma once
#include <filesystem>
#include <map>
#include <span>
#include <string_view>

#include "data/torch/pickle.h"

namespace spillway::data {

constexpr std::string_view kOrderedDict = "collections.OrderedDict", kTorchSize = "torch.Size";

class PickleTree {
 public:
  /// Parses a pickle. If it refers to a Python global for which `known` returns false, the constructor throws, and the message ends with
  /// `cure`, which advises the user what to do.
  PickleTree(std::vector<std::byte> bytes, std::filesystem::path path, const std::string& member, bool (*known)(std::string_view global),
             std::string_view cure);

  const std::filesystem::path& path() const { return path_; }
  const PickleNode& root() const { return pickle_.at(pickle_.root()); }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }
  std::string_view text(const PickleNode& node) const { return pickle_.text(node); }
  /// spend() and hold() charge work that a caller does in addition to the look-ups of this class. spend()
  /// charges steps, and hold() charges bytes that are kept. Both throw Error(data), see ReadBudget.
  void spend(u64 steps) const { pickle_.budget().spend(steps); }
  /// Charges the work of copying a name of `bytes` bytes, or of finding it among other names.
  void spend_name(u64 bytes) const { spend(kNameSteps + bytes); }
  void hold(u64 bytes) const { pickle_.budget().hold(bytes); }

  /// Returns true if the node is a call of `global`.
  bool calls(const PickleNode& node, std::string_view global) const;
  /// Returns the tuple of arguments of a call.
  const PickleNode& arguments(const PickleNode& call) const { return at(pickle_.items(call)[1]); }
  /// Returns true if the node is a dictionary, which may be an OrderedDict.
  bool is_dictionary(const PickleNode& node) const;
  /// Returns a dictionary's entries in the order key, value, key, value and so on. Returns nothing for any other node.
  std::span<const PickleRef> entries(const PickleNode& node) const;
  /// Returns the elements of a list or a tuple. Returns nothing for null and for any other node.
  std::span<const PickleRef> elements(const PickleNode* node) const;
  /// Returns the value of `key` in a dictionary. Returns null if `node` is null, is no dictionary, or has no such key.
  const PickleNode* find(const PickleNode* node, std::string_view key) const;
  /// Returns a map from each key that is a text to its value, for many look-ups in one dictionary. The map is empty for null and for a node
  /// that is no dictionary.
  std::map<std::string_view, const PickleNode*> by_key(const PickleNode* node) const;
  /// Returns an attribute of an object. Returns null if `node` is null, is no object, or has no such attribute.
  const PickleNode* attribute(const PickleNode* node, std::string_view name) const;
  /// Returns the dictionary of an object's attributes. Returns null if `node` is null, is no object, or has no attributes.
  const PickleNode* attributes(const PickleNode* node) const { return node == nullptr ? nullptr : pickle_.state(*node); }
  /// Reads a list of sizes from a tuple or a list, or from a torch.Size that was made of one. Error messages call the tensor `name`.
  std::vector<i64> sizes(const PickleNode& node, std::string_view name) const;

 protected:
  [[noreturn]] void wrong(std::string_view tensor, const std::string& why) const;
  const PickleNode& argument(const PickleNode& arguments, size_t index, std::string_view tensor) const;
  const PickleNode& persistent_id(const PickleNode& persistent) const { return at(pickle_.items(persistent)[0]); }
  i64 size(const PickleNode& node, std::string_view tensor) const;

 private:
  static constexpr u64 kNameSteps = 16;
  const std::filesystem::path path_;
  const Pickle pickle_;
};

}  // namespace spillway::data
