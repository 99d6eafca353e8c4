#include "data/torch/pickle_tree.h"

#include <fmt/format.h>

#include "data/files/file.h"
#include "data/torch/torch_archive.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

constexpr size_t kMostAxes = 64;  // PyTorch's own limit on the number of axes

}  // namespace

PickleTree::PickleTree(std::vector<std::byte> bytes, std::filesystem::path path, const std::string& member,
                       bool (*known)(std::string_view global), std::string_view cure)
    : path_(std::move(path)), pickle_(std::move(bytes), path_.string() + member) {
  constexpr size_t kShown = 200;  // the bytes of a global's name that a message shows; the name may have a million
  for (const std::string& global : pickle_.globals()) {
    if (!known(global)) {
      reject_torch(path_,
                   fmt::format("the file refers to the Python object {}, which is not part of a tensor (no code of the file was run): {}",
                               global.substr(0, kShown), cure));
    }
  }
}

void PickleTree::wrong(std::string_view tensor, const std::string& why) const {
  reject_torch(path_, fmt::format("tensor {}: {}", in_quotes(tensor), why));
}

bool PickleTree::calls(const PickleNode& node, std::string_view global) const {
  if (node.kind != Kind::object) return false;
  const PickleNode& called = at(pickle_.items(node)[0]);
  return called.kind == Kind::global && text(called) == global;
}

bool PickleTree::is_dictionary(const PickleNode& node) const { return node.kind == Kind::dict || calls(node, kOrderedDict); }

std::span<const PickleRef> PickleTree::entries(const PickleNode& node) const {
  const auto all = node.kind == Kind::dict     ? pickle_.items(node)
                   : calls(node, kOrderedDict) ? pickle_.entries(node)
                                               : std::span<const PickleRef>();
  spend(1 + all.size() / 2);
  return all;
}

std::span<const PickleRef> PickleTree::elements(const PickleNode* node) const {
  if (node == nullptr || (node->kind != Kind::list && node->kind != Kind::tuple)) return {};
  spend(1 + node->count);
  return pickle_.items(*node);
}

const PickleNode* PickleTree::find(const PickleNode* node, std::string_view key) const {
  if (node == nullptr) return nullptr;
  const auto all = entries(*node);
  for (size_t i = 0; i + 1 < all.size(); i += 2) {
    if (at(all[i]).kind == Kind::text && text(at(all[i])) == key) return &at(all[i + 1]);
  }
  return nullptr;
}

std::map<std::string_view, const PickleNode*> PickleTree::by_key(const PickleNode* node) const {
  std::map<std::string_view, const PickleNode*> values;
  const auto all = node == nullptr ? std::span<const PickleRef>() : entries(*node);
  for (size_t i = 0; i + 1 < all.size(); i += 2) {
    const PickleNode& key = at(all[i]);
    if (key.kind != Kind::text) continue;
    spend_name(key.count);
    if (values.emplace(text(key), &at(all[i + 1])).second) hold(sizeof(decltype(values)::value_type) + kMapNodeBytes);
  }
  return values;
}

const PickleNode* PickleTree::attribute(const PickleNode* node, std::string_view name) const { return find(attributes(node), name); }

const PickleNode& PickleTree::argument(const PickleNode& arguments, size_t index, std::string_view tensor) const {
  if (arguments.kind != Kind::tuple || arguments.count <= index)
    wrong(tensor, "expected more values in what describes the tensor, got too few");
  return at(pickle_.items(arguments)[index]);
}

i64 PickleTree::size(const PickleNode& node, std::string_view tensor) const {
  if (node.kind != Kind::integer || node.integer() < 0)
    wrong(tensor, "expected sizes, strides and an offset of 0 or more, got something else");
  return node.integer();
}

std::vector<i64> PickleTree::sizes(const PickleNode& node, std::string_view tensor) const {
  const PickleNode* list = &node;
  if (calls(node, kTorchSize)) list = &argument(arguments(node), 0, tensor);
  if ((list->kind != Kind::tuple && list->kind != Kind::list) || list->count > kMostAxes)
    wrong(tensor, "expected a tuple of sizes as the shape, got something else");
  std::vector<i64> all;
  for (const PickleRef ref : elements(list)) all.push_back(size(at(ref), tensor));
  return all;
}

}  // namespace spillway::data
