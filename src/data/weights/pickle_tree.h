// PickleTree is the parsed tree of a pickle that PyTorch wrote (pickle/pickle.h: the pickle is read, never run), with look-ups that several
// readers need. Every look-up is charged to the tree's read budget, so values that refer to each other thousands of times are refused
// instead of visited. Therefore even a const tree must be used by one thread only. Errors as in torch_file.h.
#pragma once
#include <filesystem>
#include <map>
#include <span>
#include <string_view>

#include "data/pickle/pickle.h"

namespace spillway::data {

constexpr std::string_view kOrderedDict = "collections.OrderedDict", kTorchSize = "torch.Size";

class PickleTree {
 public:
  /// Parses a pickle. Throws if it refers to a Python global for which `known` returns false; the message then ends with `cure`, the advice
  /// what to do.
  PickleTree(std::vector<std::byte> bytes, std::filesystem::path path, const std::string& member, bool (*known)(std::string_view global),
             std::string_view cure);

  const std::filesystem::path& path() const { return path_; }
  const PickleNode& root() const { return pickle_.at(pickle_.root()); }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }
  std::string_view text(const PickleNode& node) const { return pickle_.text(node); }
  /// Charges work that a caller does beside the look-ups here: spend() counts steps, hold() counts bytes kept. Both throw Error(data), see
  /// ReadBudget.
  void spend(u64 steps) const { pickle_.budget().spend(steps); }
  /// Charges a name of `bytes` bytes that is copied or looked up among others.
  void spend_name(u64 bytes) const { spend(kNameSteps + bytes); }
  void hold(u64 bytes) const { pickle_.budget().hold(bytes); }

  /// Returns true if the node is a call of `global`.
  bool calls(const PickleNode& node, std::string_view global) const;
  /// Returns the tuple of arguments of a call.
  const PickleNode& arguments(const PickleNode& call) const { return at(pickle_.items(call)[1]); }
  /// Returns true for a dictionary, also an OrderedDict.
  bool is_dictionary(const PickleNode& node) const;
  /// Returns a dictionary's entries as key, value, key, value ..; empty for any other node.
  std::span<const PickleRef> entries(const PickleNode& node) const;
  /// Returns the elements of a list or a tuple; empty for null and any other node.
  std::span<const PickleRef> elements(const PickleNode* node) const;
  /// Returns the value of `key` in a dictionary. Returns null if `node` is null, is no dictionary, or has no such key.
  const PickleNode* find(const PickleNode* node, std::string_view key) const;
  /// Returns a dictionary's values by those of its keys that are text, for many look-ups. The result is empty for null and any other node.
  std::map<std::string_view, const PickleNode*> by_key(const PickleNode* node) const;
  /// Returns an attribute of an object, looked up in the dictionary of its attributes. Returns null in the same cases as find().
  const PickleNode* attribute(const PickleNode* node, std::string_view name) const;
  /// Returns the attributes of an object. Returns null if `node` is null, is no object, or has no attributes.
  const PickleNode* attributes(const PickleNode* node) const { return node == nullptr ? nullptr : pickle_.state(*node); }
  /// Reads a list of sizes from a tuple, a list or a torch.Size of one. `name` is the tensor's name, for messages.
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
