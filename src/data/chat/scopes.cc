#include "data/chat/scopes.h"

#include <algorithm>
#include <functional>
#include <set>

namespace spillway::data::chat {
namespace {

// The names that a scope refers to, and those around it.
struct Names {
  const Names* around = nullptr;
  std::set<std::string> known;
  bool anywhere(const std::string& name) const { return known.contains(name) || (around && around->anywhere(name)); }
};

class Scopes {
 public:
  // Goes through the statements of one scope, then through the scopes inside it: those know all names of this one, also later ones.
  void scope(Block& block, const Names* around, const std::vector<std::string>& parameters, const Node* target = nullptr,
             const std::vector<NodePtr>* defaults = nullptr) {
    Names names{around, {parameters.begin(), parameters.end()}};
    if (target) declare(*target, names);
    if (defaults) {
      for (const NodePtr& value : *defaults) read(*value, names);
    }
    walk(block, names, block.unset, false);
    inside(block, names);
  }

 private:
  static void declare(const Node& target, Names& names) {
    if (target.kind == NodeKind::name) names.known.insert(target.name);
    for (const NodePtr& kid : target.kids) declare(*kid, names);
  }

  static void read(const Node& node, Names& names) {
    if (node.kind == NodeKind::name && !names.anywhere(node.name)) names.known.insert(node.name);
    for (const NodePtr& kid : node.kids) {
      if (kid) read(*kid, names);
    }
    for (const auto& [name, kid] : node.named) read(*kid, names);
  }

  // `maybe`: in a branch, after which Jinja looks among the variables too.
  static void write(const std::string& name, Names& names, std::vector<std::string>& unset, bool maybe) {
    if (!maybe && !names.anywhere(name)) unset.push_back(name);
    names.known.insert(name);
  }

  static void write(const Node& target, Names& names, std::vector<std::string>& unset, bool maybe) {
    if (target.kind == NodeKind::name) write(target.name, names, unset, maybe);
    for (const NodePtr& kid : target.kids) write(*kid, names, unset, maybe);
  }

  static void walk(const Block& block, Names& names, std::vector<std::string>& unset, bool maybe) {
    for (const NodePtr& node : block.statements) {
      switch (node->kind) {
        case NodeKind::branch:
          for (size_t i = 0; i < node->parts.size(); ++i) {
            if (node->kids[i]) read(*node->kids[i], names);
            walk(node->parts[i], names, unset, true);
          }
          break;
        case NodeKind::set:
          read(*node->kids[1], names);
          write(*node->kids[0], names, unset, maybe);
          break;
        case NodeKind::set_block:
          write(*node->kids[0], names, unset, maybe);
          break;
        case NodeKind::set_attribute:
          read(*node->kids[0], names);
          if (!names.anywhere(node->names[0])) names.known.insert(node->names[0]);
          break;
        case NodeKind::macro:
          write(node->code->name, names, unset, maybe);
          break;
        case NodeKind::loop:
          read(*node->kids[1], names);
          break;
        default:
          for (const NodePtr& kid : node->kids) read(*kid, names);
      }
    }
  }

  void inside(Block& block, const Names& names) {
    for (const NodePtr& node : block.statements) {
      if (node->kind == NodeKind::branch) {
        for (Block& part : node->parts) inside(part, names);
      } else if (node->code) {
        scope(node->code->body, &names, node->code->parameters, nullptr, &node->code->defaults);
      } else {
        for (size_t i = 0; i < node->parts.size(); ++i) {
          scope(node->parts[i], &names, {}, node->kind == NodeKind::loop && i == 0 ? node->kids[0].get() : nullptr);
        }
      }
    }
  }
};

bool reads_in(const Node& node, std::string_view name);

bool reads_in(const Block& block, std::string_view name) {
  return std::any_of(block.statements.begin(), block.statements.end(), [&](const NodePtr& node) { return reads_in(*node, name); });
}

bool reads_in(const Node& node, std::string_view name) {
  if (node.kind == NodeKind::name && node.name == name) return true;
  const auto in = [&](const NodePtr& kid) { return kid && reads_in(*kid, name); };
  if (std::any_of(node.kids.begin(), node.kids.end(), in)) return true;
  if (std::any_of(node.named.begin(), node.named.end(), [&](const auto& argument) { return in(argument.second); })) return true;
  if (node.code && (std::any_of(node.code->defaults.begin(), node.code->defaults.end(), in) || reads_in(node.code->body, name)))
    return true;
  return std::any_of(node.parts.begin(), node.parts.end(), [&](const Block& part) { return reads_in(part, name); });
}

}  // namespace

void find_unset_names(Block& root) { Scopes().scope(root, nullptr, {}); }

bool reads(const Block& block, std::string_view name) { return reads_in(block, name); }

bool writes(const Node& target, std::string_view name) {
  return (target.kind == NodeKind::name && target.name == name) ||
         std::any_of(target.kids.begin(), target.kids.end(), [&](const NodePtr& kid) { return writes(*kid, name); });
}

}  // namespace spillway::data::chat
