// Executes the statements of a template; evaluate.cc evaluates its expressions.
#include "data/template/interpreter.h"

#include <fmt/format.h>

#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {

Interpreter::Interpreter(Run& run, std::shared_ptr<const Dict> variables, const Values& messages)
    : run_(run), variables_(std::move(variables)) {
  for (size_t i = 0; i < messages.size(); ++i) message_numbers_.emplace(messages[i].dict(), static_cast<i64>(i) + 1);
}

Interpreter::~Interpreter() {
  // The scope of a macro may hold the macro itself. Such a reference cycle would never be freed, so this loop empties the scopes.
  for (auto& macro : macros_) {
    for (Scope* scope = macro->scope.get(); scope; scope = scope->around.get()) scope->variables.clear();
  }
}

std::string Interpreter::run(const Block& root) {
  String out;
  whole_ = &out;
  execute(root, inner(root, nullptr), out);
  find_generated(out);
  return std::string(out);
}

void Interpreter::find_generated(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> spans;
  for (const auto& [begin, points] : std::exchange(generated_, {})) {
    run_.spend_bytes(4 * points);
    const size_t end = begin + code_point_offset(text.substr(begin), points);
    if (spans.empty() || spans.back().second <= begin) {
      spans.emplace_back(begin, end);
    } else {
      spans.back().second = std::max(spans.back().second, end);
    }
  }
  generated_ = std::move(spans);
}

Interpreter::ScopePtr Interpreter::inner(const Block& block, const ScopePtr& around) {
  run_.spend();
  auto scope = make_metered<Scope>();
  scope->around = around;
  for (const std::string& name : block.unset) scope->variables.emplace_back(name, Value::undefined("'" + name + "' is undefined"));
  return scope;
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePtr& scope, String& out) {
  const Run::Level level(run_);
  for (const NodePtr& node : block.statements) {
    const Flow flow = execute(*node, scope, out);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::execute(const Node& node, const ScopePtr& scope, String& out) {
  run_.line = node.line;
  run_.spend();
  switch (node.kind) {
    case NodeKind::data:
      run_.spend_bytes(node.name.size());
      out += node.name;
      return Flow::on;
    case NodeKind::print:
      for (const NodePtr& kid : node.kids) append_text(run_, out, evaluate(*kid, scope));
      return Flow::on;
    case NodeKind::branch:
      return branch(node, scope, out);
    case NodeKind::loop: {
      const Value iterated = evaluate(*node.kids[1], scope);
      // A recursive loop's text goes to `text` first: Jinja compiles such a
      // loop into a function and outputs the function's whole text at the end.
      String text;
      loop(node, scope, iterated, 1, node.recursive ? text : out);
      out += text;
      return Flow::on;
    }
    case NodeKind::with:
      return with(node, scope, out);
    case NodeKind::set:
      check_spaces(*node.kids[0], *scope);
      assign(*node.kids[0], evaluate(*node.kids[1], scope), *scope);
      return Flow::on;
    case NodeKind::set_block:
      set_block(node, scope);
      return Flow::on;
    case NodeKind::macro:
      assign(node, macro(*node.code, scope), *scope);
      return Flow::on;
    case NodeKind::call_block: {
      const Value caller = macro(*node.code, scope);
      append_text(run_, out, call(*node.kids[0], scope, &caller));
      return Flow::on;
    }
    case NodeKind::filter_block:
      filter_block(node, scope, out);
      return Flow::on;
    case NodeKind::generation:
      generation(node, scope, out);
      return Flow::on;
    case NodeKind::leave:
      return Flow::leave;
    case NodeKind::next_iteration:
      return Flow::next;
    default:
      run_.fail("expected a statement, got an expression");
  }
}

Interpreter::Flow Interpreter::branch(const Node& node, const ScopePtr& scope, String& out) {
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (!node.kids[i] || truth(evaluate(*node.kids[i], scope))) return execute(node.parts[i], scope, out);
  }
  return Flow::on;
}

bool Interpreter::passes(const Node& node, const ScopePtr& scope, const Value& item) {
  auto own = make_metered<Scope>();
  own->around = scope;
  assign(*node.kids[0], item, *own);
  return truth(evaluate(*node.kids[2], own));
}

void Interpreter::loop(const Node& node, const ScopePtr& scope, const Value& iterated, i64 depth, String& out) {
  auto items = items_of(run_, iterated);
  const bool has_condition = node.kids[2] != nullptr;
  // A loop with a condition skips items that fail it. If the body reads the variable `loop`, all items are tested before the first
  // iteration, because `loop` counts the items that pass. Otherwise each item is tested just before its iteration, because the body may
  // change what the condition reads.
  if (has_condition && node.uses_loop) {
    Values chosen;
    for (const Value& item : items->items) {
      if (passes(node, scope, item)) chosen.push_back(item);
    }
    items = std::get<std::shared_ptr<const Sequence>>(make_list(run_, std::move(chosen)).held());
  }
  Loop at{items, 0, depth, node.recursive ? &node : nullptr, scope, node.uses_loop ? make_metered<Space*>(nullptr) : nullptr};
  bool any_whole = false;
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (has_condition && !node.uses_loop && !passes(node, scope, items->items[i])) continue;
    at.index = i;
    const Flow flow = iteration(node, scope, at, out);
    if (flow == Flow::leave) break;
    any_whole = any_whole || flow == Flow::on;
  }
  // A loop runs its else part if no iteration reached the end of the loop's body. Jinja's compiled code does so too, although `else` is
  // meant for loops without items.
  if (!any_whole && node.parts.size() > 1) execute(node.parts[1], inner(node.parts[1], scope), out);
}

Interpreter::Flow Interpreter::iteration(const Node& node, const ScopePtr& scope, const Loop& at, String& out) {
  const Value& item = at.items->items[at.index];
  const i64 outer_message = run_.message;
  if (const auto found = message_numbers_.find(item.dict()); found != message_numbers_.end()) run_.message = found->second;
  const ScopePtr own = inner(node.parts[0], scope);
  assign(*node.kids[0], item, *own);
  if (node.uses_loop) assign_name(*own, "loop", Value(std::shared_ptr<const Loop>(make_metered<Loop>(at))));
  const Flow flow = execute(node.parts[0], own, out);
  run_.message = outer_message;
  return flow;
}

String Interpreter::rendered(const Block& block, const ScopePtr& scope) {
  String out;
  execute(block, scope, out);
  return out;
}

void Interpreter::set_block(const Node& node, const ScopePtr& scope) {
  const ScopePtr own = inner(node.parts[0], scope);
  Value text = rendered(node.parts[0], own);
  if (node.kids[1]) text = filter(*node.kids[1], own, &text);
  assign(*node.kids[0], std::move(text), *scope);
}

void Interpreter::filter_block(const Node& node, const ScopePtr& scope, String& out) {
  const ScopePtr own = inner(node.parts[0], scope);
  const Value text = rendered(node.parts[0], own);
  append_text(run_, out, filter(*node.kids[0], own, &text));
}

Interpreter::Flow Interpreter::with(const Node& node, const ScopePtr& scope, String& out) {
  const ScopePtr own = inner(node.parts[0], scope);
  for (size_t i = 0; i < node.kids[0]->kids.size(); ++i) assign(*node.kids[0]->kids[i], evaluate(*node.kids[1]->kids[i], scope), *own);
  return execute(node.parts[0], own, out);
}

Space& Interpreter::space_of(const Node& attribute, const Scope& scope) const {
  Space* const space = name(attribute.name, scope).space();
  if (!space) run_.fail("cannot assign attribute on non-namespace object");
  return *space;
}

void Interpreter::check_spaces(const Node& target, const Scope& scope) const {
  if (target.kind == NodeKind::space_attribute) space_of(target, scope);
  for (const NodePtr& kid : target.kids) check_spaces(*kid, scope);
}

void Interpreter::generation(const Node& node, const ScopePtr& scope, String& out) {
  const Value text = call_macro(*macro(*node.code, scope).callable()->macro, {});
  generated_.emplace_back(whole_->size(), code_point_count(*text.text()));
  append_text(run_, out, text);
}

void Interpreter::assign(const Node& target, Value value, Scope& scope) {
  if (target.kind == NodeKind::macro) return assign_name(scope, target.code->name, std::move(value));
  if (target.kind == NodeKind::name) return assign_name(scope, target.name, std::move(value));
  if (target.kind == NodeKind::space_attribute) return set_attribute(run_, space_of(target, scope), target.names[0], std::move(value));
  const auto items = items_of(run_, value);
  if (items->items.size() != target.kids.size())
    run_.fail(fmt::format("expected {} values to unpack, got {}", target.kids.size(), items->items.size()));
  for (size_t i = 0; i < target.kids.size(); ++i) assign(*target.kids[i], items->items[i], scope);
}

void Interpreter::assign_name(Scope& scope, std::string_view name, Value value) {
  run_.spend(static_cast<i64>(scope.variables.size() / kScannedInAStep));
  for (auto& [known, held] : scope.variables) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  scope.variables.emplace_back(name, std::move(value));
}

Value Interpreter::macro(const MacroCode& code, const ScopePtr& scope) {
  run_.spend(20);
  macros_.push_back(make_metered<Macro>(Macro{code, scope}));
  return std::shared_ptr<const Callable>(make_metered<Callable>(Callable{code.name, Value(), macros_.back().get()}));
}

}  // namespace spillway::data::chat
