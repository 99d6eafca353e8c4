// The tree of a pickle that PyTorch wrote (pickle/pickle.h: read, never run), and what is commonly looked up in one. Errors as
// torch_file.h's.
#pragma once
#include <filesystem>
#include <span>
#include <string_view>

#include "data/pickle/pickle.h"

namespace spillway::data {

constexpr std::string_view kOrderedDict = "collections.OrderedDict", kTorchSize = "torch.Size";

class PickleTree {
 public:
  /// Refuses a pickle that asks for a global which is not `known`; `cure`: what to do then.
  PickleTree(std::span<const std::byte> bytes, std::filesystem::path path, const std::string& member,
             bool (*known)(std::string_view global), std::string_view cure);

  const std::filesystem::path& path() const { return path_; }
  const PickleNode& root() const { return pickle_.at(pickle_.root()); }
  const PickleNode& at(PickleRef ref) const { return pickle_.at(ref); }

  /// Whether it is the call of that global.
  bool calls(const PickleNode& node, std::string_view global) const;
  /// Of dictionaries, ordered ones too.
  bool is_dictionary(const PickleNode& node) const;
  /// key, value, key, value ..; of anything else none.
  std::span<const PickleRef> entries(const PickleNode& node) const;
  /// Null where `node` is null, no dictionary, or has no such key.
  const PickleNode* find(const PickleNode* node, std::string_view key) const;
  /// Of an object, by the dictionary of its attributes. Null as find().
  const PickleNode* attribute(const PickleNode* node, std::string_view name) const;
  /// A tuple, a list, or torch.Size of one; `name` is for messages.
  std::vector<i64> sizes(const PickleNode& node, const std::string& name) const;

 protected:
  [[noreturn]] void wrong(const std::string& tensor, const std::string& why) const;
  const PickleNode& argument(const PickleNode& arguments, size_t index, const std::string& tensor) const;
  i64 size(const PickleNode& node, const std::string& tensor) const;

 private:
  const std::filesystem::path path_;
  const Pickle pickle_;
};

}  // namespace spillway::data
