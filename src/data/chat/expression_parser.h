// Parses expressions, with Jinja's precedence: weakest first, inline if, or, and, not, comparisons, + and -, ~, * / // %, **, unary, and
// behind each operand . [] () | is.
#pragma once
#include "data/chat/token_stream.h"

namespace spillway::data::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  NodePtr expression(bool with_condition = true);
  /// Expressions with commas between them are a tuple; ends before `end_word`.
  NodePtr tuple(bool with_condition = true, std::string_view end_word = "");
  /// What for and with write to: a name, or a tuple of such.
  NodePtr target(std::string_view end_word = "");
  /// What set writes to: the same, and attributes of namespaces (`ns.x`).
  NodePtr set_target();
  /// `upper | replace('a', 'b')`, under which there is nothing yet.
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
