#include "data/template/syntax/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "data/template/syntax/expression_parser.h"
#include "data/template/syntax/scopes.h"

namespace spillway::data::chat {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const std::string& file) : stream_(tokenize(source, file), file), expressions_(stream_) {}

  Syntax whole() {
    Syntax syntax;
    syntax.body = statements_until({});
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  // Parses statements up to and including the name of one of the tags `ends`. If `ends` is empty, parses to the end of the template.
  Block statements_until(const std::vector<std::string_view>& ends) {
    const TokenStream::Deeper deeper(stream_);
    Block block;
    while (true) {
      switch (stream_.now().kind) {
        case TokenKind::data: {
          NodePtr node = stream_.node(NodeKind::data);
          node->name = stream_.take().text;
          block.statements.push_back(std::move(node));
          break;
        }
        case TokenKind::print_begin: {
          NodePtr node = stream_.node(NodeKind::print);
          stream_.take();
          stream_.add(*node, expressions_.tuple());
          stream_.expect(TokenKind::print_end);
          block.statements.push_back(std::move(node));
          break;
        }
        case TokenKind::block_begin:
          stream_.take();
          if (stream_.sees_any_name(ends)) return block;
          block.statements.push_back(statement());
          stream_.expect(TokenKind::block_end);
          break;
        default:
          if (!ends.empty()) stream_.expected("{% " + std::string(ends.back()) + " %}");
          return block;
      }
    }
  }

  // Expects the end of a statement's tag, and then parses the statement's body as statements_until() does.
  Block body_until(const std::vector<std::string_view>& ends) {
    stream_.skip(":");
    stream_.expect(TokenKind::block_end);
    return statements_until(ends);
  }

  Block whole_body(std::string_view end) {
    Block block = body_until({end});
    stream_.take();
    return block;
  }

  NodePtr statement() {
    NodePtr node = stream_.node(NodeKind::data);
    if (stream_.now().kind != TokenKind::name) stream_.expected("the name of a tag");
    const std::string tag = stream_.now().text;
    constexpr std::array<std::string_view, 11> kTags = {"for",    "if",         "set",   "with",  "macro",   "call",
                                                        "filter", "generation", "print", "break", "continue"};
    if (std::ranges::find(kTags, tag) == kTags.end())
      stream_.expected("one of the tags for, if, set, with, macro, call, filter, generation, print, raw, break, continue");
    stream_.take();
    if (tag == "for") loop(*node);
    if (tag == "if") branch(*node);
    if (tag == "set") set(*node);
    if (tag == "with") with(*node);
    if (tag == "print") print_statement(*node);
    if (tag == "macro") macro(*node);
    if (tag == "call") call_block(*node);
    if (tag == "filter") filter_block(*node);
    if (tag == "generation") generation(*node);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) stream_.fail("expected {% " + tag + " %} inside a loop, got the tag outside of one");
      node->kind = tag == "break" ? NodeKind::leave : NodeKind::next_iteration;
    }
    return node;
  }

  void loop(Node& node) {
    node.kind = NodeKind::loop;
    stream_.add(node, expressions_.target("in"));
    stream_.expect_name("in");
    stream_.add(node, expressions_.tuple(false, "recursive"));
    stream_.add(node, stream_.skip_name("if") ? expressions_.expression() : nullptr);
    node.recursive = stream_.skip_name("recursive");
    if (writes(*node.kids[0], "loop")) stream_.fail("expected a loop variable with another name than 'loop', got 'loop'");
    ++loops_;
    node.parts.push_back(body_until({"else", "endfor"}));
    --loops_;
    node.uses_loop = node.recursive || reads_unset(node.parts[0], "loop");
    if (stream_.skip_name("else")) node.parts.push_back(body_until({"endfor"}));
    stream_.take();
  }

  void branch(Node& node) {
    node.kind = NodeKind::branch;
    std::string next = "elif";
    while (next == "elif") {
      stream_.add(node, expressions_.tuple(false));
      node.parts.push_back(body_until({"elif", "else", "endif"}));
      next = stream_.take().text;
    }
    if (next == "endif") return;
    node.kids.push_back(nullptr);
    node.parts.push_back(whole_body("endif"));
  }

  void set(Node& node) {
    stream_.add(node, expressions_.set_target());
    if (stream_.skip("=")) {
      node.kind = NodeKind::set;
      stream_.add(node, expressions_.tuple());
      return;
    }
    node.kind = NodeKind::set_block;
    stream_.add(node, stream_.skip("|") ? expressions_.filters() : nullptr);
    const Buffered buffered(*this);
    node.parts.push_back(whole_body("endset"));
  }

  void with(Node& node) {
    node.kind = NodeKind::with;
    NodePtr targets = stream_.node(NodeKind::tuple), values = stream_.node(NodeKind::tuple);
    while (stream_.now().kind != TokenKind::block_end) {
      if (!targets->kids.empty()) stream_.expect(",");
      stream_.add(*targets, expressions_.target());
      stream_.expect("=");
      stream_.add(*values, expressions_.expression());
    }
    stream_.add(node, std::move(targets));
    stream_.add(node, std::move(values));
    node.parts.push_back(whole_body("endwith"));
  }

  void print_statement(Node& node) {
    node.kind = NodeKind::print;
    while (stream_.now().kind != TokenKind::block_end) {
      if (!node.kids.empty()) stream_.expect(",");
      stream_.add(node, expressions_.expression());
    }
  }

  void parameters(MacroCode& code) {
    stream_.expect("(");
    while (!stream_.sees(")")) {
      if (!code.parameters.empty()) stream_.expect(",");
      std::string name = stream_.take_name();
      if (code.parameters.size() == kMostNamed) stream_.fail(fmt::format("expected at most {} parameters, got more", kMostNamed));
      if (std::find(code.parameters.begin(), code.parameters.end(), name) != code.parameters.end())
        stream_.fail("expected each parameter once, got '" + name + "' twice");
      code.parameters.push_back(std::move(name));
      if (stream_.skip("=")) {
        code.defaults.push_back(expressions_.expression());
      } else if (!code.defaults.empty()) {
        stream_.fail("expected a default for every parameter after the first one with a default, got a parameter without one");
      }
    }
    stream_.expect(")");
  }

  void macro(Node& node) {
    node.kind = NodeKind::macro;
    node.code = std::make_unique<MacroCode>();
    node.code->name = stream_.take_name();
    parameters(*node.code);
    macro_body(*node.code, "endmacro");
  }

  void macro_body(MacroCode& code, std::string_view end) {
    const Buffered buffered(*this);
    code.body = whole_body(end);
    const auto takes = [&](std::string_view name) {
      return std::find(code.parameters.begin(), code.parameters.end(), name) != code.parameters.end();
    };
    code.uses_caller = reads_unset(code.body, "caller");
    code.uses_kwargs = reads_unset(code.body, "kwargs") && !takes("kwargs");
    code.uses_varargs = reads_unset(code.body, "varargs") && !takes("varargs");
    code.names_caller = takes("caller");
    const auto defaults = code.parameters.end() - static_cast<std::ptrdiff_t>(code.defaults.size());
    if (code.uses_caller && code.names_caller && std::find(defaults, code.parameters.end(), "caller") == code.parameters.end())
      stream_.fail("expected a default for the parameter 'caller', got the parameter without one");
  }

  void call_block(Node& node) {
    node.kind = NodeKind::call_block;
    node.code = std::make_unique<MacroCode>();
    node.code->name = "caller";
    if (stream_.sees("(")) parameters(*node.code);
    stream_.add(node, expressions_.expression());
    if (node.kids[0]->kind != NodeKind::call) stream_.expected("a call");
    macro_body(*node.code, "endcall");
  }

  void filter_block(Node& node) {
    node.kind = NodeKind::filter_block;
    stream_.add(node, expressions_.filters());
    const Buffered buffered(*this, loops_);
    node.parts.push_back(whole_body("endfilter"));
  }

  void generation(Node& node) {
    node.kind = NodeKind::generation;
    has_generation_ = true;
    node.code = std::make_unique<MacroCode>();
    node.code->name = "caller";
    macro_body(*node.code, "endgeneration");
  }

  // While a Buffered lives, the parser is inside a statement whose text is rendered
  // separately. In such a statement, break and continue cannot refer to a loop around it.
  class Buffered {
   public:
    explicit Buffered(Parser& parser, int loops = 0) : parser_(parser), loops_(std::exchange(parser.loops_, loops)) {}
    ~Buffered() { parser_.loops_ = loops_; }
    Buffered(const Buffered&) = delete;
    Buffered& operator=(const Buffered&) = delete;

   private:
    Parser& parser_;
    int loops_;
  };

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Syntax parse(std::string_view source, const std::string& file) {
  Syntax syntax = Parser(source, file).whole();
  find_unset_names(syntax.body);
  return syntax;
}

}  // namespace spillway::data::chat
