#include "data/template/syntax/expression_parser.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace spillway::data::chat {

NodePtr ExpressionParser::expression(bool with_condition) {
  const TokenStream::Deeper deeper(stream_);
  NodePtr node = either();
  while (with_condition && stream_.skip_name("if")) {
    NodePtr whole = stream_.node(NodeKind::conditional);
    stream_.add(*whole, std::move(node));
    stream_.add(*whole, either());
    stream_.add(*whole, stream_.skip_name("else") ? expression() : nullptr);
    node = std::move(whole);
  }
  return node;
}

NodePtr ExpressionParser::tuple(bool with_condition, std::string_view end_word) {
  return list_of(with_condition ? Part::expression : Part::unconditional, end_word, false);
}

NodePtr ExpressionParser::target(std::string_view end_word) {
  NodePtr node = list_of(Part::target, end_word, false);
  check_target(*node);
  return node;
}

NodePtr ExpressionParser::set_target() {
  if (sees_space_attribute()) return space_attribute();
  NodePtr node = list_of(Part::set_target, "", false);
  check_target(*node);
  return node;
}

NodePtr ExpressionParser::space_attribute() {
  NodePtr node = stream_.node(NodeKind::space_attribute);
  node->name = stream_.take_name();
  stream_.expect(".");
  node->names.push_back(stream_.take_name());
  return node;
}

NodePtr ExpressionParser::filters() {
  NodePtr node = filter(nullptr);
  while (stream_.skip("|")) node = filter(std::move(node));
  return node;
}

NodePtr ExpressionParser::list_of(Part part, std::string_view end_word, bool in_parentheses) {
  const TokenStream::Deeper deeper(stream_);
  NodePtr whole = stream_.node(NodeKind::tuple);
  bool is_tuple = false;
  while (true) {
    if (!whole->kids.empty()) stream_.expect(",");
    const TokenKind kind = stream_.now().kind;
    if (kind == TokenKind::print_end || kind == TokenKind::block_end || stream_.sees(")") ||
        (!end_word.empty() && stream_.sees_name(end_word)))
      break;
    if (part == Part::target || part == Part::set_target) {
      stream_.add(*whole, part == Part::set_target && sees_space_attribute() ? space_attribute() : primary());
    } else {
      stream_.add(*whole, expression(part == Part::expression));
    }
    if (!stream_.sees(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return whole;
  if (!whole->kids.empty()) return std::move(whole->kids.front());
  if (!in_parentheses) stream_.expected("an expression");
  return whole;
}

void ExpressionParser::check_target(const Node& node) {
  if (node.kind == NodeKind::tuple) {
    for (const NodePtr& kid : node.kids) check_target(*kid);
  } else if (node.kind != NodeKind::name && node.kind != NodeKind::space_attribute) {
    stream_.fail("expected a name to set, got an expression");
  }
}

NodePtr ExpressionParser::either() {
  NodePtr node = both();
  while (stream_.sees_name("or")) {
    NodePtr whole = stream_.node(NodeKind::either);
    stream_.take();
    stream_.add(*whole, std::move(node));
    stream_.add(*whole, both());
    node = std::move(whole);
  }
  return node;
}

NodePtr ExpressionParser::both() {
  NodePtr node = negation();
  while (stream_.sees_name("and")) {
    NodePtr whole = stream_.node(NodeKind::both);
    stream_.take();
    stream_.add(*whole, std::move(node));
    stream_.add(*whole, negation());
    node = std::move(whole);
  }
  return node;
}

NodePtr ExpressionParser::negation() {
  if (!stream_.sees_name("not")) return comparison();
  const TokenStream::Deeper deeper(stream_);
  NodePtr node = stream_.node(NodeKind::negation);
  stream_.take();
  stream_.add(*node, negation());
  return node;
}

NodePtr ExpressionParser::comparison() {
  constexpr std::pair<std::string_view, Comparison> kSigns[] = {{"==", Comparison::equal},  {"!=", Comparison::not_equal},
                                                                {"<", Comparison::less},    {"<=", Comparison::less_equal},
                                                                {">", Comparison::greater}, {">=", Comparison::greater_equal}};
  NodePtr node = stream_.node(NodeKind::comparison);
  stream_.add(*node, sum());
  while (true) {
    const auto* sign = std::begin(kSigns);
    while (sign != std::end(kSigns) && !stream_.sees(sign->first)) ++sign;
    if (sign != std::end(kSigns)) {
      stream_.take();
      node->comparisons.push_back(sign->second);
    } else if (stream_.skip_name("in")) {
      node->comparisons.push_back(Comparison::in);
    } else if (stream_.sees_name("not") && stream_.ahead().is_name("in")) {
      stream_.take();
      stream_.take();
      node->comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    stream_.add(*node, sum());
  }
  return node->comparisons.empty() ? std::move(node->kids.front()) : std::move(node);
}

NodePtr ExpressionParser::binary(Operator op, NodePtr left, NodePtr right) {
  NodePtr node = stream_.node(NodeKind::binary);
  node->line = left->line;
  node->op = op;
  stream_.add(*node, std::move(left));
  stream_.add(*node, std::move(right));
  return node;
}

NodePtr ExpressionParser::sum() {
  NodePtr node = concatenation();
  while (stream_.sees("+") || stream_.sees("-")) {
    const Operator op = stream_.take().text == "+" ? Operator::add : Operator::subtract;
    node = binary(op, std::move(node), concatenation());
  }
  return node;
}

NodePtr ExpressionParser::concatenation() {
  NodePtr first = product();
  if (!stream_.sees("~")) return first;
  NodePtr node = stream_.node(NodeKind::concat);
  stream_.add(*node, std::move(first));
  while (stream_.skip("~")) stream_.add(*node, product());
  return node;
}

NodePtr ExpressionParser::product() {
  constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::modulo}};
  NodePtr node = power();
  while (true) {
    const auto* sign = std::begin(kSigns);
    while (sign != std::end(kSigns) && !stream_.sees(sign->first)) ++sign;
    if (sign == std::end(kSigns)) return node;
    stream_.take();
    node = binary(sign->second, std::move(node), power());
  }
}

NodePtr ExpressionParser::power() {
  NodePtr node = unary(true);
  while (stream_.skip("**")) node = binary(Operator::power, std::move(node), unary(true));
  return node;
}

NodePtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::Deeper deeper(stream_);
  NodePtr node;
  if (stream_.sees("-") || stream_.sees("+")) {
    node = stream_.node(stream_.sees("-") ? NodeKind::minus : NodeKind::plus);
    stream_.take();
    stream_.add(*node, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

NodePtr ExpressionParser::primary() {
  NodePtr node = stream_.node(NodeKind::constant);
  const Token& token = stream_.now();
  if (token.kind == TokenKind::name) {
    const std::string& name = token.text;
    stream_.take();
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      node->constant = Value(name == "true" || name == "True");
    } else if (name == "none" || name == "None") {
      node->constant = None{};
    } else {
      node->kind = NodeKind::name;
      node->name = name;
    }
  } else if (token.kind == TokenKind::string) {
    std::string text;
    while (stream_.now().kind == TokenKind::string) text += stream_.take().text;
    node->constant = Value(std::move(text));
  } else if (token.kind == TokenKind::integer) {
    std::string_view digits = token.text;
    const char letter = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : '\0';
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
    i64 n = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), n, base).ec != std::errc())
      stream_.expected("a whole number that fits in 64 bits");
    node->constant = n;
    stream_.take();
  } else if (token.kind == TokenKind::real) {
    node->constant = std::strtod(stream_.take().text.c_str(), nullptr);
  } else if (stream_.skip("(")) {
    node = list_of(Part::expression, "", true);
    stream_.expect(")");
  } else if (stream_.sees("[")) {
    node = list();
  } else if (stream_.sees("{")) {
    node = dict();
  } else {
    stream_.expected("an expression");
  }
  return node;
}

NodePtr ExpressionParser::list() {
  NodePtr node = stream_.node(NodeKind::list);
  stream_.expect("[");
  while (!stream_.sees("]")) {
    if (!node->kids.empty()) stream_.expect(",");
    if (stream_.sees("]")) break;
    stream_.add(*node, expression());
  }
  stream_.expect("]");
  return node;
}

NodePtr ExpressionParser::dict() {
  NodePtr node = stream_.node(NodeKind::dict);
  stream_.expect("{");
  while (!stream_.sees("}")) {
    if (!node->kids.empty()) stream_.expect(",");
    if (stream_.sees("}")) break;
    stream_.add(*node, expression());
    stream_.expect(":");
    stream_.add(*node, expression());
  }
  stream_.expect("}");
  return node;
}

NodePtr ExpressionParser::postfix(NodePtr node) {
  while (true) {
    if (stream_.sees(".") || stream_.sees("[")) {
      node = subscript(std::move(node));
    } else if (stream_.sees("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::filters_and_tests(NodePtr node) {
  while (true) {
    if (stream_.skip("|")) {
      node = filter(std::move(node));
    } else if (stream_.sees_name("is")) {
      node = test(std::move(node));
    } else if (stream_.sees("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::filter(NodePtr filtered) {
  NodePtr node = stream_.node(NodeKind::filter);
  node->name = stream_.take_name();
  while (stream_.skip(".")) node->name += "." + stream_.take_name();
  stream_.add(*node, std::move(filtered));
  if (stream_.sees("(")) arguments(*node);
  return node;
}

NodePtr ExpressionParser::test(NodePtr tested) {
  NodePtr node = stream_.node(NodeKind::test);
  stream_.take();
  const bool negated = stream_.skip_name("not");
  node->name = stream_.take_name();
  while (stream_.skip(".")) node->name += "." + stream_.take_name();
  stream_.add(*node, std::move(tested));
  const TokenKind next = stream_.now().kind;
  const bool operand = next == TokenKind::name || next == TokenKind::string || next == TokenKind::integer || next == TokenKind::real ||
                       stream_.sees("[") || stream_.sees("{");
  if (stream_.sees("(")) {
    arguments(*node);
  } else if (operand && !stream_.sees_any_name({"else", "or", "and"})) {
    if (stream_.sees_name("is")) stream_.fail("expected one test, got a chain of `is`");
    stream_.add(*node, postfix(primary()));
  }
  if (!negated) return node;
  NodePtr negation = stream_.node(NodeKind::negation);
  negation->line = node->line;
  stream_.add(*negation, std::move(node));
  return negation;
}

NodePtr ExpressionParser::call(NodePtr called) {
  NodePtr node = stream_.node(NodeKind::call);
  stream_.add(*node, std::move(called));
  arguments(*node);
  return node;
}

void ExpressionParser::arguments(Node& parent) {
  stream_.expect("(");
  for (bool first = true; !stream_.sees(")"); first = false) {
    if (!first) stream_.expect(",");
    if (stream_.sees(")")) break;
    argument(parent);
  }
  stream_.expect(")");
}

void ExpressionParser::argument(Node& parent) {
  if (stream_.skip("*")) {
    if (parent.more || parent.more_named) stream_.fail("expected at most one * argument in a call, and none after **, got another");
    return stream_.put(parent, parent.more, expression());
  }
  if (parent.more_named) stream_.fail("expected ** as the last argument of a call, got another argument after it");
  if (stream_.skip("**")) return stream_.put(parent, parent.more_named, expression());
  if (stream_.now().kind == TokenKind::name && stream_.ahead().is_sign("=")) {
    std::string name = stream_.take().text;
    stream_.take();
    if (parent.named.size() == kMostNamed) stream_.fail(fmt::format("expected at most {} keyword arguments, got more", kMostNamed));
    for (const auto& other : parent.named) {
      if (other.first == name) stream_.fail("expected each argument once, got '" + name + "' twice");
    }
    return stream_.add_named(parent, std::move(name), expression());
  }
  if (parent.more || !parent.named.empty())
    stream_.fail("expected positional arguments first, got one after a keyword argument or after *");
  stream_.add(parent, expression());
}

NodePtr ExpressionParser::subscript(NodePtr owner) {
  if (stream_.skip("[")) return bracket(std::move(owner));
  stream_.expect(".");
  NodePtr node = stream_.node(NodeKind::attribute);
  if (stream_.now().kind == TokenKind::name) {
    node->name = stream_.take().text;
    stream_.add(*node, std::move(owner));
  } else if (stream_.now().kind == TokenKind::integer) {
    node->kind = NodeKind::item;
    stream_.add(*node, std::move(owner));
    stream_.add(*node, primary());
  } else {
    stream_.expected("a name or a number");
  }
  return node;
}

NodePtr ExpressionParser::bracket(NodePtr owner) {
  NodePtr node = stream_.node(NodeKind::item);
  stream_.add(*node, std::move(owner));
  stream_.add(*node, stream_.sees(":") ? nullptr : expression());
  if (stream_.skip(":")) {
    node->kind = NodeKind::slice;
    const auto absent = [&] { return stream_.sees("]") || stream_.sees(":"); };
    stream_.add(*node, absent() ? nullptr : expression());
    stream_.add(*node, stream_.skip(":") && !absent() ? expression() : nullptr);
  }
  if (stream_.sees(",")) stream_.fail("expected one index, got several");
  stream_.expect("]");
  return node;
}

}  // namespace spillway::data::chat
