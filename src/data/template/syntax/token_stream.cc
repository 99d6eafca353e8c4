#include "data/template/syntax/token_stream.h"

#include <algorithm>

namespace spillway::data::chat {

Token TokenStream::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::sees_any_name(const std::vector<std::string_view>& names) const {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return sees_name(name); });
}

bool TokenStream::skip(std::string_view sign) {
  if (!sees(sign)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!sees_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect(std::string_view sign) {
  if (!skip(sign)) expected("'" + std::string(sign) + "'");
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) expected("'" + std::string(name) + "'");
}

void TokenStream::expect(TokenKind kind) {
  if (now().kind != kind) expected(Token{kind, 1, ""}.shown());
  take();
}

std::string TokenStream::take_name() {
  if (now().kind != TokenKind::name) expected("a name");
  return take().text;
}

void TokenStream::fail(const std::string& what) const { fail_at(file_, now().line, what); }

NodePtr TokenStream::node(NodeKind kind) const {
  auto made = std::make_unique<Node>();
  made->kind = kind;
  made->line = now().line;
  return made;
}

void TokenStream::grow(Node& parent, const Node& kid) const {
  parent.height = std::max(parent.height, kid.height + 1);
  if (parent.height > kDeepest) fail("expected expressions nested at most 200 deep, got deeper ones");
}

void TokenStream::add(Node& parent, NodePtr kid) const {
  if (kid) grow(parent, *kid);
  parent.kids.push_back(std::move(kid));
}

void TokenStream::add_named(Node& parent, std::string name, NodePtr kid) const {
  grow(parent, *kid);
  parent.named.emplace_back(std::move(name), std::move(kid));
}

void TokenStream::put(Node& parent, NodePtr& slot, NodePtr kid) const {
  grow(parent, *kid);
  slot = std::move(kid);
}

}  // namespace spillway::data::chat
