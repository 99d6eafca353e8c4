// TokenStream is the list of a template's tokens together with the parser's position in
// it. The parser's errors are thrown by TokenStream, with the line of that position.
#pragma once
#include <string>
#include <vector>

#include "data/template/syntax/lexer.h"
#include "data/template/syntax/syntax.h"

namespace spillway::data::chat {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& file) : tokens_(std::move(tokens)), file_(file) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool sees(std::string_view sign) const { return now().is_sign(sign); }
  bool sees_name(std::string_view name) const { return now().is_name(name); }
  bool sees_any_name(const std::vector<std::string_view>& names) const;
  bool skip(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect(std::string_view sign);
  void expect_name(std::string_view name);
  void expect(TokenKind kind);
  std::string take_name();

  /// Throws Error(data) with the message `what` and the line of the current token.
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void expected(const std::string& what) const { fail("expected " + what + ", got " + now().shown()); }

  NodePtr node(NodeKind kind) const;
  /// Appends `kid` (which may be null) to the children of `parent`. Fails if the tree becomes deeper than kDeepest.
  void add(Node& parent, NodePtr kid) const;
  void add_named(Node& parent, std::string name, NodePtr kid) const;
  /// Stores `kid` in `slot`, a member of `parent` other than its children, such as Node::more.
  void put(Node& parent, NodePtr& slot, NodePtr kid) const;

  /// While a Deeper lives, the parser is one level deeper in its recursion. The constructor fails beyond kDeepest levels.
  class Deeper {
   public:
    explicit Deeper(TokenStream& stream) : stream_(stream) {
      if (++stream_.depth_ > kDeepest) stream_.fail("expected expressions and blocks nested at most 200 deep, got deeper ones");
    }
    ~Deeper() { --stream_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  void grow(Node& parent, const Node& kid) const;
  std::vector<Token> tokens_;
  const std::string& file_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace spillway::data::chat
