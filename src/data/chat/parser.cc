#include "data/chat/parser.h"

#include <algorithm>

#include "data/chat/expression_parser.h"
#include "data/chat/scopes.h"

namespace spillway::data::chat {
namespace {

class Parser {
 public:
  Parser(std::string source, const std::string& file) : stream_(tokenize(std::move(source), file), file), expressions_(stream_) {}

  Syntax whole() {
    Syntax syntax;
    syntax.body = statements_until({});
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  // Statements up to, and with, the name of one of these tags; without any, up to the template's end.
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

  // The same for the body of a statement, whose tag is still open.
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
    if (tag == "for" || tag == "if" || tag == "set" || tag == "macro" || tag == "call" || tag == "filter" || tag == "generation" ||
        tag == "break" || tag == "continue") {
      stream_.take();
    } else {
      stream_.expected("one of the tags for, if, set, macro, call, filter, generation, raw, break, continue");
    }
    if (tag == "for") loop(*node);
    if (tag == "if") branch(*node);
    if (tag == "set") set(*node);
    if (tag == "macro") macro(*node);
    if (tag == "call") call_block(*node);
    if (tag == "filter") filter_block(*node);
    if (tag == "generation") generation(*node);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) stream_.fail("expected {% " + tag + " %} in a loop, got it outside");
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
    if (stream_.sees_name("recursive")) stream_.fail("expected a plain loop, got a recursive one");
    if (writes(*node.kids[0], "loop")) stream_.fail("expected another name than 'loop' for what a loop goes through");
    ++loops_;
    node.parts.push_back(body_until({"else", "endfor"}));
    --loops_;
    node.uses_loop = reads(node.parts[0], "loop");
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
    if (stream_.now().kind == TokenKind::name && stream_.ahead().is_sign(".")) {
      node.kind = NodeKind::set_attribute;
      node.names.push_back(stream_.take_name());
      stream_.expect(".");
      node.names.push_back(stream_.take_name());
      if (!stream_.skip("=")) stream_.expected("'=' behind an attribute to set");
      stream_.add(node, expressions_.tuple());
      return;
    }
    stream_.add(node, expressions_.target());
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

  void parameters(MacroCode& code) {
    stream_.expect("(");
    while (!stream_.sees(")")) {
      if (!code.parameters.empty()) stream_.expect(",");
      std::string name = stream_.take_name();
      if (std::find(code.parameters.begin(), code.parameters.end(), name) != code.parameters.end())
        stream_.fail("expected each parameter once, got '" + name + "' twice");
      code.parameters.push_back(std::move(name));
      if (stream_.skip("=")) {
        code.defaults.push_back(expressions_.expression());
      } else if (!code.defaults.empty()) {
        stream_.fail("expected a default for each parameter behind the first that has one");
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
    code.uses_caller = reads(code.body, "caller");
    code.uses_kwargs = reads(code.body, "kwargs");
    code.uses_varargs = reads(code.body, "varargs");
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
    if (buffers_ > 0)
      stream_.fail("expected {% generation %} where its place in the text is known, got it in a macro, a call, a block that is set or " +
                   std::string("filtered, or another generation"));
    has_generation_ = true;
    const Buffered buffered(*this);
    node.parts.push_back(whole_body("endgeneration"));
  }

  // Inside what is rendered apart, break and continue do not reach the loop around, and places in the text are not known.
  class Buffered {
   public:
    explicit Buffered(Parser& parser, int loops = 0) : parser_(parser), loops_(std::exchange(parser.loops_, loops)) { ++parser_.buffers_; }
    ~Buffered() {
      parser_.loops_ = loops_;
      --parser_.buffers_;
    }
    Buffered(const Buffered&) = delete;
    Buffered& operator=(const Buffered&) = delete;

   private:
    Parser& parser_;
    int loops_;
  };

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0, buffers_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Syntax parse(std::string source, const std::string& file) {
  Syntax syntax = Parser(std::move(source), file).whole();
  find_unset_names(syntax.body);
  return syntax;
}

}  // namespace spillway::data::chat
