// The tree of a pickle that PyTorch wrote (pickle/pickle.h: read, never run), and what is commonly looked up in one. Every look-up is
// charged to the tree's budget, so that values which refer to each other a thousand times are refused instead of visited: a const tree is
// one thread's. Errors as torch_file.h's.
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
  /// Refuses a pickle that asks for a global which is not `known`; `cure`: what to do then.
  PickleTree(std::vector<std::byte> bytes, std::filesystem::path path, const std::string& member, bool (*known)(std::string_view global),
             std::string_view cure);

  const std::filesystem::path& path() const { return path_; }
  const PickleNode& root() const { return pickle_.at(pickle_.root()); }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }
  std::string_view text(const PickleNode& node) const { return pickle_.text(node); }
  /// What a walk costs beside the look-ups here. Both throw Error(data), see ReadBudget.
  void spend(u64 steps) const { pickle_.budget().spend(steps); }
  /// A name of so many bytes that is copied or looked up among others.
  void spend_name(u64 bytes) const { spend(kNameSteps + bytes); }
  void hold(u64 bytes) const { pickle_.budget().hold(bytes); }

  /// Whether it is the call of that global.
  bool calls(const PickleNode& node, std::string_view global) const;
  /// Of a call.
  const PickleNode& arguments(const PickleNode& call) const { return at(pickle_.items(call)[1]); }
  /// Of dictionaries, ordered ones too.
  bool is_dictionary(const PickleNode& node) const;
  /// key, value, key, value ..; of anything else none.
  std::span<const PickleRef> entries(const PickleNode& node) const;
  /// Of a list or a tuple; of null and anything else none.
  std::span<const PickleRef> elements(const PickleNode* node) const;
  /// Null where `node` is null, no dictionary, or has no such key.
  const PickleNode* find(const PickleNode* node, std::string_view key) const;
  /// The values of a dictionary by those of its keys that are texts, for many look-ups; of null and anything else none.
  std::map<std::string_view, const PickleNode*> by_key(const PickleNode* node) const;
  /// Of an object, by the dictionary of its attributes. Null as find().
  const PickleNode* attribute(const PickleNode* node, std::string_view name) const;
  /// Null where `node` is null, no object, or has none.
  const PickleNode* attributes(const PickleNode* node) const { return node == nullptr ? nullptr : pickle_.state(*node); }
  /// A tuple, a list, or torch.Size of one; `name` is for messages.
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
