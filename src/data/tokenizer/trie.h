// A trie of byte strings, each with an id, which finds all stored strings with
// which a text begins. After the last add() the trie is immutable and thread-safe.
#pragma once
#include <array>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace spillway::data {

class Trie {
 public:
  /// Adds a string with its id. If the string is in the trie already, its id is replaced.
  void add(std::string_view key, i32 id) {
    u32 node = 0;
    for (const char c : key) {
      const u32 next = child(node, c);
      if (next != 0) {
        node = next;
        continue;
      }
      const auto made = static_cast<u32>(ids_.size());
      ids_.push_back(-1);
      if (node == 0) {
        first_[static_cast<unsigned char>(c)] = made;
      } else {
        children_.emplace(key_of(node, c), made);
      }
      node = made;
    }
    ids_[node] = id;
  }

  /// The number of budget steps that is charged for each byte that prefixes() looks at.
  static constexpr size_t kStepCost = 8;
  /// Calls found(length, id) for each stored string with which `text` begins,
  /// the shortest first. Returns how many bytes of `text` were looked at.
  template <class Found>
  size_t prefixes(std::string_view text, const Found& found) const {
    u32 node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node == 0) return i + 1;
      if (ids_[node] >= 0) found(i + 1, ids_[node]);
    }
    return text.size();
  }

 private:
  static u64 key_of(u32 node, char c) { return static_cast<u64>(node) << 8 | static_cast<unsigned char>(c); }
  u32 child(u32 node, char c) const {
    if (node == 0) return first_[static_cast<unsigned char>(c)];
    const auto found = children_.find(key_of(node, c));
    return found == children_.end() ? 0 : found->second;
  }
  std::array<u32, 256> first_{};  // for each byte, the index of the root's child (the root is node 0); 0 if there is no child
  std::unordered_map<u64, u32> children_;
  std::vector<i32> ids_ = {-1};
};

}  // namespace spillway::data
