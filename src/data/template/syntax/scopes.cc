#include "data/template/syntax/scopes.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

namespace spillway::data::chat {
namespace {

// The names that one scope adds to those of the enclosing scopes. The names of all scopes are in one shared set, so that a look-up in a
// deeply nested scope takes one search.
class Names {
 public:
  using Known = std::set<std::string_view>;
  explicit Names(Known& all) : all_(all) {}
  ~Names() {
    for (const std::string_view name : own_) all_.erase(name);
  }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  bool has(std::string_view name) const { return all_.contains(name); }
  void add(std::string_view name) {
    if (all_.insert(name).second) own_.push_back(name);
  }

 private:
  Known& all_;
  std::vector<std::string_view> own_;
};

class Scopes {
 public:
  // Visits the statements of a scope, then the scopes inside it. The inner scopes know all names of this scope, also names that are set
  // after them.
  void scope(Block& block, const std::vector<std::string>& parameters, const Node* target = nullptr,
             const std::vector<NodePtr>* defaults = nullptr) {
    Names names(known_);
    for (const std::string& parameter : parameters) names.add(parameter);
    if (target) declare(*target, names);
    if (defaults) {
      for (const NodePtr& value : *defaults) read(*value, names);
    }
    walk(block, names, block.unset, false);
    inside(block);
  }

 private:
  static void declare(const Node& target, Names& names) {
    if (target.kind == NodeKind::name) names.add(target.name);
    for (const NodePtr& kid : target.kids) declare(*kid, names);
  }

  static void read(const Node& node, Names& names) {
    if (node.kind == NodeKind::name) names.add(node.name);
    for (const NodePtr& kid : node.kids) {
      if (kid) read(*kid, names);
    }
    for (const auto& [name, kid] : node.named) read(*kid, names);
    for (const NodePtr* more : {&node.more, &node.more_named}) {
      if (*more) read(**more, names);
    }
  }

  // Records that a name is set. `maybe` is true inside a branch, which may not run.
  // After such a branch, Jinja looks the name up among the template's variables too.
  static void write(const std::string& name, Names& names, std::vector<std::string>& unset, bool maybe) {
    if (!maybe && !names.has(name)) unset.push_back(name);
    names.add(name);
  }

  static void write(const Node& target, Names& names, std::vector<std::string>& unset, bool maybe) {
    if (target.kind == NodeKind::name) write(target.name, names, unset, maybe);
    if (target.kind == NodeKind::space_attribute) names.add(target.name);
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
        case NodeKind::macro:
          write(node->code->name, names, unset, maybe);
          break;
        case NodeKind::loop:
        case NodeKind::with:
          read(*node->kids[1], names);
          break;
        default:
          for (const NodePtr& kid : node->kids) read(*kid, names);
      }
    }
  }

  void inside(Block& block) {
    for (const NodePtr& node : block.statements) {
      if (node->kind == NodeKind::branch) {
        for (Block& part : node->parts) inside(part);
      } else if (node->code) {
        scope(node->code->body, node->code->parameters, nullptr, &node->code->defaults);
      } else {
        for (size_t i = 0; i < node->parts.size(); ++i) {
          const bool has_target = (node->kind == NodeKind::loop && i == 0) || node->kind == NodeKind::with;
          scope(node->parts[i], {}, has_target ? node->kids[0].get() : nullptr);
        }
      }
    }
  }

  Names::Known known_;
};

// Finds, for each name in kSpecialNames, whether the name is first read or first
// set. The parts of a node are visited in the order in which Jinja visits them.
class FirstUseFinder {
 public:
  const FirstUses& found() const { return found_; }

  void visit(const Block& block) {
    if (block.first_uses) {
      for (size_t i = 0; i < found_.size(); ++i) note(i, (*block.first_uses)[i]);
      return;
    }
    for (const NodePtr& statement : block.statements) visit(*statement);
  }

 private:
  void note(size_t name, Use use) {
    if (found_[name] == Use::none) found_[name] = use;
  }
  void note(std::string_view name, Use use) {
    for (size_t i = 0; i < kSpecialNames.size(); ++i) {
      if (name == kSpecialNames[i]) note(i, use);
    }
  }
  void target(const Node& node) {
    if (node.kind == NodeKind::name) note(node.name, Use::sets);
    for (const NodePtr& kid : node.kids) target(*kid);
  }
  void maybe(const NodePtr& kid) {
    if (kid) visit(*kid);
  }

  void visit(const Node& node) {
    switch (node.kind) {
      case NodeKind::name:
        note(node.name, Use::reads);
        break;
      case NodeKind::loop:
        target(*node.kids[0]);
        maybe(node.kids[1]);
        for (const Block& part : node.parts) visit(part);
        return maybe(node.kids[2]);
      case NodeKind::branch:
        for (size_t i = 0; i < node.parts.size(); ++i) {
          maybe(node.kids[i]);
          visit(node.parts[i]);
        }
        break;
      case NodeKind::set:
      case NodeKind::set_block:
      case NodeKind::with:
        target(*node.kids[0]);
        maybe(node.kids[1]);
        for (const Block& part : node.parts) visit(part);
        break;
      case NodeKind::filter_block:
        visit(node.parts[0]);
        return maybe(node.kids[0]);
      case NodeKind::conditional:
        maybe(node.kids[1]);
        maybe(node.kids[0]);
        return maybe(node.kids[2]);
      default:
        expression_or_macro(node);
    }
  }

  void expression_or_macro(const Node& node) {
    for (const NodePtr& kid : node.kids) maybe(kid);
    for (const auto& [name, kid] : node.named) maybe(kid);
    maybe(node.more);
    maybe(node.more_named);
    if (!node.code) return;
    for (const std::string& parameter : node.code->parameters) note(parameter, Use::sets);
    for (const NodePtr& kid : node.code->defaults) maybe(kid);
    visit(node.code->body);
  }

  FirstUses found_{};
};

}  // namespace

void find_unset_names(Block& root) { Scopes().scope(root, {}); }

bool reads_unset(Block& block, std::string_view name) {
  if (!block.first_uses) {
    FirstUseFinder finder;
    finder.visit(block);
    block.first_uses = finder.found();
  }
  const auto at = static_cast<size_t>(std::ranges::find(kSpecialNames, name) - kSpecialNames.begin());
  return block.first_uses->at(at) == Use::reads;
}

bool writes(const Node& target, std::string_view name) {
  return (target.kind == NodeKind::name && target.name == name) ||
         std::any_of(target.kids.begin(), target.kids.end(), [&](const NodePtr& kid) { return writes(*kid, name); });
}

}  // namespace spillway::data::chat
