// Parses expressions with Jinja's operator precedence. From the weakest to the strongest: inline if, or, and, not, comparisons, + and -, ~,
// * / // %, **, unary operators, and the postfix operators . [] () | is.
#pragma once
#include "data/template/syntax/token_stream.h"

namespace spillway::data::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  NodePtr expression(bool with_condition = true);
  /// Parses an expression, or a tuple of expressions separated by commas. The name `end_word` ends the expression and is not consumed.
  NodePtr tuple(bool with_condition = true, std::string_view end_word = "");
  /// Parses the target of `for` and `with`: a name, or a tuple of targets.
  NodePtr target(std::string_view end_word = "");
  /// Parses the target of `set`: whatever target() accepts, or an attribute of a namespace (`ns.x`).
  NodePtr set_target();
  /// Parses a chain of filters that has no input before it, as a filter block has: `upper | replace('a', 'b')`.
  NodePtr filters();

 private:
  enum class Part { expression, unconditional, target, set_target };
  NodePtr list_of(Part part, std::string_view end_word, bool in_parentheses);
  NodePtr either();
  NodePtr both();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr concatenation();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool with_filters);
  NodePtr primary();
  NodePtr postfix(NodePtr node);
  NodePtr filters_and_tests(NodePtr node);
  NodePtr filter(NodePtr node);
  NodePtr test(NodePtr node);
  NodePtr call(NodePtr node);
  NodePtr subscript(NodePtr node);
  NodePtr bracket(NodePtr node);
  NodePtr list();
  NodePtr dict();
  NodePtr binary(Operator op, NodePtr left, NodePtr right);
  NodePtr space_attribute();
  bool sees_space_attribute() const { return stream_.now().kind == TokenKind::name && stream_.ahead().is_sign("."); }
  void arguments(Node& parent);
  void argument(Node& parent);
  void check_target(const Node& node);
  TokenStream& stream_;
};

}  // namespace spillway::data::chat
