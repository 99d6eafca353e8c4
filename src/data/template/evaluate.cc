#include <fmt/format.h>

#include <algorithm>

#include "data/template/access.h"
#include "data/template/interpreter.h"
#include "data/template/values/print_value.h"

namespace spillway::data::chat {
namespace {

// Increments a counter for the lifetime of the object.
class Counted {
 public:
  explicit Counted(int& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& count_;
};

}  // namespace

Value Interpreter::evaluate(const Node& node, const ScopePtr& scope) {
  const Run::Level level(run_);
  run_.line = node.line;
  run_.spend();
  return evaluate_kind(node, scope);
}

Value Interpreter::evaluate_kind(const Node& node, const ScopePtr& scope) {
  const auto kid = [&](size_t i) { return evaluate(*node.kids[i], scope); };
  switch (node.kind) {
    case NodeKind::constant:
      return node.constant;
    case NodeKind::name:
      return name(node.name, *scope);
    case NodeKind::list:
    case NodeKind::tuple:
      return list(node, scope);
    case NodeKind::dict:
      return dict(node, scope);
    case NodeKind::negation:
      return !truth(kid(0));
    case NodeKind::minus:
      return negate(run_, kid(0));
    case NodeKind::plus:
      return unary_plus(run_, kid(0));
    case NodeKind::binary:
      return binary(node, scope);
    case NodeKind::concat:
      return concat(node, scope);
    case NodeKind::comparison:
      return comparison(node, scope);
    case NodeKind::both:
    case NodeKind::either: {
      Value left = kid(0);
      return truth(left) == (node.kind == NodeKind::either) ? left : kid(1);
    }
    case NodeKind::conditional:
      if (truth(kid(1))) return kid(0);
      if (node.kids[2]) return kid(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
    case NodeKind::attribute:
      return get_attribute(run_, kid(0), node.name);
    case NodeKind::item:
      return item(node, scope);
    case NodeKind::slice:
      return slice(node, scope);
    case NodeKind::call:
      return call(node, scope, nullptr);
    case NodeKind::filter:
      return filter(node, scope, nullptr);
    case NodeKind::test: {
      Arguments all = arguments(node, scope);
      return apply_test(run_, node.name, std::move(all));
    }
    default:
      run_.fail("expected an expression, got a statement");
  }
}

Value Interpreter::name(const std::string& name, const Scope& scope) const {
  for (const Scope* around = &scope; around; around = around->around.get()) {
    run_.spend(static_cast<i64>(around->variables.size() / kScannedInAStep));
    for (const auto& [known, value] : around->variables) {
      if (known == name) return value;
    }
  }
  if (const Value* variable = variables_->find(name)) return *variable;
  if (has_function(name)) return std::shared_ptr<const Callable>(make_metered<Callable>(Callable{name, Value(), nullptr}));
  return Value::undefined("'" + name + "' is undefined");
}

Value Interpreter::list(const Node& node, const ScopePtr& scope) {
  Values items;
  for (const NodePtr& kid : node.kids) items.push_back(evaluate(*kid, scope));
  return make_sequence(run_, node.kind == NodeKind::list ? Form::list : Form::tuple, std::move(items));
}

Value Interpreter::dict(const Node& node, const ScopePtr& scope) {
  DictBuilder dict(run_);
  for (size_t i = 0; i < node.kids.size(); i += 2) {
    Value key = evaluate(*node.kids[i], scope);
    dict.set(std::move(key), evaluate(*node.kids[i + 1], scope));
  }
  return dict.done();
}

Value Interpreter::concat(const Node& node, const ScopePtr& scope) {
  String out;
  for (const NodePtr& kid : node.kids) append_text(run_, out, evaluate(*kid, scope));
  return out;
}

Value Interpreter::binary(const Node& node, const ScopePtr& scope) {
  const Value left = evaluate(*node.kids[0], scope), right = evaluate(*node.kids[1], scope);
  run_.line = node.line;
  return apply(run_, node.op, left, right);
}

Value Interpreter::comparison(const Node& node, const ScopePtr& scope) {
  Value left = evaluate(*node.kids[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.kids[i + 1], scope);
    run_.line = node.line;
    if (!holds(run_, node.comparisons[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::item(const Node& node, const ScopePtr& scope) {
  const Value owner = evaluate(*node.kids[0], scope), key = evaluate(*node.kids[1], scope);
  run_.line = node.line;
  return get_item(run_, owner, key);
}

Value Interpreter::evaluate_or_none(const NodePtr& node, const ScopePtr& scope) { return node ? evaluate(*node, scope) : Value(None{}); }

Value Interpreter::slice(const Node& node, const ScopePtr& scope) {
  const Value owner = evaluate(*node.kids[0], scope), start = evaluate_or_none(node.kids[1], scope);
  const Value stop = evaluate_or_none(node.kids[2], scope), step = evaluate_or_none(node.kids[3], scope);
  run_.line = node.line;
  return get_slice(run_, owner, start, stop, step);
}

Arguments Interpreter::arguments(const Node& node, const ScopePtr& scope) {
  Arguments all;
  for (const NodePtr& kid : node.kids) {
    if (kid) all.plain.push_back(evaluate(*kid, scope));
  }
  add_named_and_more(node, scope, all);
  return all;
}

void Interpreter::add_named_and_more(const Node& node, const ScopePtr& scope, Arguments& all) {
  if (node.more) {
    const auto more = items_of(run_, evaluate(*node.more, scope));
    all.plain.insert(all.plain.end(), more->items.begin(), more->items.end());
  }
  for (const auto& [name, kid] : node.named) add_named(all, name, evaluate(*kid, scope));
  if (node.more_named) {
    const Value more = evaluate(*node.more_named, scope);
    run_.line = node.line;
    if (!more.dict()) run_.fail(fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
    for (const auto& [name, value] : more.dict()->entries) {
      if (!name.text()) run_.fail("keywords must be strings");
      run_.spend_bytes(all.named.size() * name.text()->size());
      if (std::ranges::any_of(all.named, [&](const auto& known) { return known.first == *name.text(); }))
        run_.fail(fmt::format("got multiple values for keyword argument '{}'", *name.text()));
      add_named(all, *name.text(), value);
    }
  }
  run_.line = node.line;
}

void Interpreter::add_named(Arguments& all, std::string_view name, Value value) {
  if (all.named.size() == kMostNamed) run_.fail(fmt::format("expected at most {} keyword arguments, got more", kMostNamed));
  all.named.emplace_back(name, std::move(value));
}

Value Interpreter::filter(const Node& node, const ScopePtr& scope, const Value* filtered) {
  if (!filtered || !node.kids[0]) {
    Arguments all = arguments(node, scope);
    if (filtered) all.plain.insert(all.plain.begin(), *filtered);
    return apply_filter(run_, node.name, std::move(all));
  }
  // A filter block may have a chain of filters. The block's text is then the input of the first filter of the chain.
  Arguments all;
  all.plain.push_back(filter(*node.kids[0], scope, filtered));
  for (size_t i = 1; i < node.kids.size(); ++i) all.plain.push_back(evaluate(*node.kids[i], scope));
  add_named_and_more(node, scope, all);
  return apply_filter(run_, node.name, std::move(all));
}

Value Interpreter::call(const Node& node, const ScopePtr& scope, const Value* caller) {
  Arguments all = arguments(node, scope);
  const Value called = std::move(all.plain.front());
  all.plain.erase(all.plain.begin());
  if (caller) all.named.emplace_back("caller", *caller);
  const Callable* callable = called.callable();
  if (called.is_undefined()) {
    const auto& why = std::get<Undefined>(called.held()).why;
    run_.fail(why ? std::string(*why) : "a value is undefined");
  }
  if (called.loop()) return call_loop(*called.loop(), all);
  if (called.turns() && !called.turns()->is_cycler) {
    if (!all.plain.empty() || !all.named.empty()) run_.fail("Joiner.__call__() takes no arguments");
    return std::exchange(called.turns()->at, 1) == 0 ? Value("") : called.turns()->items[0];
  }
  if (!callable) run_.fail(fmt::format("'{}' object is not callable", type_name(called)));
  if (callable->macro) return call_macro(*callable->macro, std::move(all));
  if (callable->self.is_undefined()) return call_function(run_, callable->name, std::move(all));
  return call_method(run_, callable->self, callable->name, std::move(all));
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (!loop.recursive) run_.fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.plain.size() != 1 || !arguments.named.empty())
    run_.fail("expected exactly one positional argument for loop(), got other arguments");
  const ScopePtr around = loop.around.lock();
  if (!around) run_.fail("expected loop() to be called inside its own loop, got a call after the loop had ended");
  String text;
  this->loop(*loop.recursive, around, arguments.plain[0], loop.depth + 1, text);
  return text;
}

Value Interpreter::call_macro(const Macro& macro, Arguments all) {
  const MacroCode& code = macro.code;
  const Counted counted(calls_);
  if (calls_ > kDeepest) run_.fail(fmt::format("expected macros that call each other at most {} deep, got deeper calls", kDeepest));
  const auto take_named = [&](const std::string& wanted) -> std::optional<Value> {
    run_.spend(static_cast<i64>(all.named.size() / kScannedInAStep));
    for (auto at = all.named.begin(); at != all.named.end(); ++at) {
      if (std::string_view(at->first) != wanted) continue;
      Value value = std::move(at->second);
      all.named.erase(at);
      return value;
    }
    return {};
  };
  const ScopePtr own = inner(code.body, macro.scope);
  const size_t count = code.parameters.size();
  List<std::optional<Value>> given(count);
  for (size_t i = 0; i < count; ++i) given[i] = i < all.plain.size() ? std::optional(all.plain[i]) : take_named(code.parameters[i]);
  // The default value of a macro's parameter can read the parameters before it. A later parameter is undefined in the default value, even
  // if a variable outside the macro has the same name.
  for (size_t i = 0; i < count; ++i) {
    assign_name(*own, code.parameters[i],
                given[i] ? *given[i] : Value::undefined("parameter '" + code.parameters[i] + "' was not provided"));
  }
  if (code.uses_caller && !code.names_caller)
    assign_name(*own, "caller", take_named("caller").value_or(Value::undefined("No caller defined")));
  if (code.uses_kwargs) {
    DictBuilder rest(run_);
    for (auto& [name, value] : std::exchange(all.named, {})) rest.set(name, std::move(value));
    assign_name(*own, "kwargs", rest.done());
  }
  if (!all.named.empty()) run_.fail(fmt::format("macro '{}' takes no keyword argument '{}'", code.name, all.named.front().first));
  if (code.uses_varargs) {
    Values rest(all.plain.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.plain.size())), all.plain.end());
    assign_name(*own, "varargs", make_sequence(run_, Form::tuple, std::move(rest)));
  } else if (all.plain.size() > count) {
    run_.fail(fmt::format("macro '{}' takes not more than {} argument(s)", code.name, count));
  }
  const size_t first_default = count - code.defaults.size();
  for (size_t i = first_default; i < count; ++i) {
    if (!given[i]) assign_name(*own, code.parameters[i], evaluate(*code.defaults[i - first_default], own));
  }
  return rendered(code.body, own);
}

}  // namespace spillway::data::chat
