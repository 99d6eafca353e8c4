// Interpreter executes the syntax tree of a template once. One thread uses an Interpreter; several Interpreters may share a tree.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/syntax/syntax.h"
#include "data/template/values/builtins.h"

namespace spillway::data::chat {

/// The variables of a block, a loop body or a macro. A name that is not found among them is looked up in the enclosing scope, `around`.
struct Scope {
  std::shared_ptr<Scope> around;
  List<std::pair<std::string_view, Value>> variables;
};

struct Macro {
  const MacroCode& code;
  std::shared_ptr<Scope> scope;
};

class Interpreter {
 public:
  /// Creates an interpreter. `variables` are the values that the template can read. `messages` are
  /// the conversation's messages: while a loop visits one of them, error messages give its number.
  Interpreter(Run& run, std::shared_ptr<const Dict> variables, const Values& messages);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Renders the template and returns the text.
  std::string run(const Block& root);
  /// Returns the byte ranges of the rendered text that count as output of {% generation %} blocks, in order and
  /// without overlaps. They are computed as in transformers. A range begins where the main text ended when the
  /// block was rendered, and has as many characters as the block's text. For a block inside a macro, or inside
  /// a block that is set or filtered, the range is not necessarily where the block's text is in the result.
  const std::vector<std::pair<size_t, size_t>>& generated() const { return generated_; }

 private:
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { on, leave, next };

  // The functions below execute statements and append their output to `out`.
  Flow execute(const Block& block, const ScopePtr& scope, String& out);
  Flow execute(const Node& node, const ScopePtr& scope, String& out);
  Flow branch(const Node& node, const ScopePtr& scope, String& out);
  void loop(const Node& node, const ScopePtr& scope, const Value& iterated, i64 depth, String& out);
  Flow iteration(const Node& node, const ScopePtr& scope, const Loop& at, String& out);
  bool passes(const Node& node, const ScopePtr& scope, const Value& item);
  void set_block(const Node& node, const ScopePtr& scope);
  void filter_block(const Node& node, const ScopePtr& scope, String& out);
  Flow with(const Node& node, const ScopePtr& scope, String& out);
  void generation(const Node& node, const ScopePtr& scope, String& out);
  void find_generated(std::string_view text);
  String rendered(const Block& block, const ScopePtr& scope);
  Space& space_of(const Node& attribute, const Scope& scope) const;
  void check_spaces(const Node& target, const Scope& scope) const;
  void assign(const Node& target, Value value, Scope& scope);
  void assign_name(Scope& scope, std::string_view name, Value value);
  ScopePtr inner(const Block& block, const ScopePtr& around);
  Value macro(const MacroCode& code, const ScopePtr& scope);

  // The functions below evaluate expressions.
  Value evaluate(const Node& node, const ScopePtr& scope);
  Value evaluate_kind(const Node& node, const ScopePtr& scope);
  Value name(const std::string& name, const Scope& scope) const;
  Value list(const Node& node, const ScopePtr& scope);
  Value dict(const Node& node, const ScopePtr& scope);
  Value concat(const Node& node, const ScopePtr& scope);
  Value comparison(const Node& node, const ScopePtr& scope);
  Value binary(const Node& node, const ScopePtr& scope);
  Value item(const Node& node, const ScopePtr& scope);
  Value slice(const Node& node, const ScopePtr& scope);
  Value filter(const Node& node, const ScopePtr& scope, const Value* filtered);
  Value call(const Node& node, const ScopePtr& scope, const Value* caller);
  Value call_macro(const Macro& macro, Arguments arguments);
  Value call_loop(const Loop& loop, const Arguments& arguments);
  Arguments arguments(const Node& node, const ScopePtr& scope);
  void add_named_and_more(const Node& node, const ScopePtr& scope, Arguments& all);
  void add_named(Arguments& all, std::string_view name, Value value);
  Value evaluate_or_none(const NodePtr& node, const ScopePtr& scope);

  Run& run_;
  std::shared_ptr<const Dict> variables_;
  std::map<const Dict*, i64> message_numbers_;
  List<std::shared_ptr<Macro>> macros_;
  // While the template runs, `generated_` holds the start and the number of code
  // points of each {% generation %} block. Afterwards it holds byte ranges.
  std::vector<std::pair<size_t, size_t>> generated_;
  const String* whole_ = nullptr;  // the main text that has been rendered so far
  int calls_ = 0;
};

}  // namespace spillway::data::chat
