#include "data/weights/pickle_tree.h"

#include <fmt/format.h>

#include "data/weights/torch_archive.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

constexpr size_t kMostAxes = 64;  // PyTorch's own

}  // namespace

PickleTree::PickleTree(std::span<const std::byte> bytes, std::filesystem::path path, const std::string& member,
                       bool (*known)(std::string_view global), std::string_view cure)
    : path_(std::move(path)), pickle_(bytes, path_.string() + member) {
  for (const PickleNode& node : pickle_.nodes()) {
    if (node.kind == Kind::global && !known(node.text))
      reject_torch(path_, fmt::format("it asks for {}, which is no part of a tensor (nothing of it was run): {}", node.text, cure));
  }
}

void PickleTree::wrong(const std::string& tensor, const std::string& why) const {
  reject_torch(path_, fmt::format("tensor {}: {}", tensor, why));
}

bool PickleTree::calls(const PickleNode& node, std::string_view global) const {
  return node.kind == Kind::object && at(node.items[0]).kind == Kind::global && at(node.items[0]).text == global;
}

bool PickleTree::is_dictionary(const PickleNode& node) const { return node.kind == Kind::dict || calls(node, kOrderedDict); }

std::span<const PickleRef> PickleTree::entries(const PickleNode& node) const {
  if (node.kind == Kind::dict) return node.items;
  return is_dictionary(node) ? std::span<const PickleRef>(node.entries) : std::span<const PickleRef>();
}

const PickleNode* PickleTree::find(const PickleNode* node, std::string_view key) const {
  if (node == nullptr) return nullptr;
  const auto all = entries(*node);
  for (size_t i = 0; i + 1 < all.size(); i += 2) {
    if (at(all[i]).kind == Kind::text && at(all[i]).text == key) return &at(all[i + 1]);
  }
  return nullptr;
}

const PickleNode& PickleTree::argument(const PickleNode& arguments, size_t index, const std::string& tensor) const {
  if (arguments.kind != Kind::tuple || arguments.items.size() <= index) wrong(tensor, "it is made of too few values");
  return at(arguments.items[index]);
}

i64 PickleTree::size(const PickleNode& node, const std::string& tensor) const {
  if (node.kind != Kind::integer || node.integer < 0 || !node.text.empty())
    wrong(tensor, "expected sizes, strides and an offset of 0 or more");
  return node.integer;
}

std::vector<i64> PickleTree::sizes(const PickleNode& node, const std::string& tensor) const {
  if (calls(node, kTorchSize)) {
    const PickleNode& of = argument(at(node.items[1]), 0, tensor);
    if (calls(of, kTorchSize)) wrong(tensor, "expected a tuple of sizes");
    return sizes(of, tensor);
  }
  if ((node.kind != Kind::tuple && node.kind != Kind::list) || node.items.size() > kMostAxes) wrong(tensor, "expected a tuple of sizes");
  std::vector<i64> all;
  for (const PickleRef ref : node.items) all.push_back(size(at(ref), tensor));
  return all;
}

const PickleNode* PickleTree::attribute(const PickleNode* node, std::string_view name) const {
  return node == nullptr || node->kind != Kind::object || node->state.empty() ? nullptr : find(&at(node->state[0]), name);
}

}  // namespace spillway::data
