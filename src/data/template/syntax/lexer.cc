#include "data/template/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "data/template/values/run.h"
#include "data/text/code_points.h"
#include "data/text/string_literal.h"

namespace spillway::data::chat {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

bool is_digit_of(char c, int base) {
  if (base == 16) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& file) : source_(with_plain_newlines(source)), file_(file) {}

  std::vector<Token> tokens() && {
    if (!is_utf8(source_)) fail("expected a template in UTF-8, got other bytes");
    while (at_ < source_.size()) text_and_tag();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  static std::string with_plain_newlines(std::string_view source) {
    std::string plain = normalize_newlines(source);
    if (plain.ends_with('\n')) plain.pop_back();
    return plain;
  }

  [[noreturn]] void fail(const std::string& what) const { fail_at(file_, line_, what); }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool sees(std::string_view mark) const { return rest().starts_with(mark); }

  void add(TokenKind kind, std::string text = "") { tokens_.push_back({kind, line_, std::move(text)}); }

  // Moves forward by `bytes` bytes. If the last of these bytes is a newline, the next token is at the beginning of a line.
  void advance(size_t bytes) {
    const std::string_view passed = rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += passed.size();
    line_starts_ = !passed.empty() && passed.back() == '\n';
  }

  size_t spaces_at(size_t from) const {
    size_t end = from;
    while (end < source_.size() && is_space(code_point_at(source_, end))) end += code_point_bytes(source_, end);
    return end - from;
  }

  // Returns the number of bytes that the end of a tag takes at `from`, or 0 if no tag ends there. The end is "-%}" and the white space
  // after it, or "+%}", or "%}" and one newline after it.
  size_t tag_end(size_t from, std::string_view mark) const {
    const std::string_view here = std::string_view(source_).substr(from);
    if (here.starts_with('-') && here.substr(1).starts_with(mark)) return 3 + spaces_at(from + 3);
    if (mark == "}}") return here.starts_with(mark) ? 2 : 0;
    if (here.starts_with('+') && here.substr(1).starts_with(mark)) return 3;
    if (!here.starts_with(mark)) return 0;
    return here.substr(2).starts_with('\n') ? 3 : 2;
  }

  // Adds the text before a tag. `sign` is the character after the tag's opening. If it is '-', the white space before the tag is removed.
  // If the tag is a block or a comment, the indentation before it is removed, unless `sign` is '+'.
  void add_data(std::string_view text, char sign, bool takes_indentation) {
    if (sign == '-') {
      text = strip(text, 1);
    } else if (sign != '+' && takes_indentation) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == text.npos ? 0 : newline + 1;
      if ((begin > 0 || line_starts_) && strip(text.substr(begin), 0).empty()) text = text.substr(0, begin);
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
  }

  void text_and_tag() {
    size_t tag = source_.find('{', at_);
    while (tag != source_.npos && (tag + 1 >= source_.size() || std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == source_.npos) {
      add(TokenKind::data, source_.substr(at_));
      return advance(source_.size() - at_);
    }
    const std::string_view text = rest().substr(0, tag - at_);
    const char kind = source_[tag + 1], next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = next == '-' || next == '+';
    add_data(text, has_sign ? next : '\0', kind != '{');
    advance(text.size() + 2);
    if (kind == '%' && raw_block()) return;
    if (has_sign) advance(1);
    if (kind == '#') return comment();
    add(kind == '{' ? TokenKind::print_begin : TokenKind::block_begin);
    inside(kind == '{' ? "}}" : "%}", kind == '{' ? TokenKind::print_end : TokenKind::block_end);
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail("expected #} at the end of a comment, got the end of the template");
    const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const size_t begin = has_sign ? end - 1 : end;
    advance(begin - at_ + tag_end(begin, "#}"));
  }

  // Returns the position after the name `word` and the white space around it. The search starts at
  // `from`, directly after "{%", where a sign may stand. Returns npos if the text there is not `word`.
  size_t past_word(size_t from, std::string_view word) const {
    if (from < source_.size() && (source_[from] == '-' || source_[from] == '+')) ++from;
    from += spaces_at(from);
    if (!std::string_view(source_).substr(from).starts_with(word)) return source_.npos;
    from += word.size();
    return from + spaces_at(from);
  }

  bool raw_block() {
    const size_t end_of_word = past_word(at_, "raw");
    if (end_of_word == source_.npos) return false;
    const std::string_view here = std::string_view(source_).substr(end_of_word);
    if (!here.starts_with("%}") && !here.starts_with("-%}")) return false;
    advance(end_of_word - at_ + (here.starts_with('-') ? 3 + spaces_at(end_of_word + 3) : 2));
    for (size_t open = source_.find("{%", at_); open != source_.npos; open = source_.find("{%", open + 1)) {
      const size_t word_end = past_word(open + 2, "endraw");
      const size_t end = word_end == source_.npos ? 0 : tag_end(word_end, "%}");
      if (end == 0) continue;
      add_data(rest().substr(0, open - at_), source_[open + 2], true);
      advance(word_end + end - at_);
      return true;
    }
    fail("expected {% endraw %}, got the end of the template");
  }

  void inside(std::string_view mark, TokenKind end_kind) {
    std::string open;  // a stack of the brackets that are open
    while (at_ < source_.size()) {
      if (const size_t end = open.empty() ? tag_end(at_, mark) : 0; end > 0) {
        add(end_kind);
        return advance(end);
      }
      if (const size_t spaces = spaces_at(at_); spaces > 0) {
        advance(spaces);
        continue;
      }
      if (number()) continue;
      if (is_word(code_point_at(source_, at_))) {
        name();
      } else if (peek() == '\'' || peek() == '"') {
        string();
      } else {
        sign(open);
      }
    }
  }

  // Returns the end of the digits that begin at `from`. Single underscores may separate the digits.
  size_t digits_end(size_t from, int base) const {
    size_t end = from;
    while (end < source_.size() && (is_digit_of(source_[end], base) ||
                                    (source_[end] == '_' && end > from && end + 1 < source_.size() && is_digit_of(source_[end + 1], base))))
      ++end;
    return end;
  }

  // Returns the end of the floating-point number that begins at `at_`, or `at_` itself if no number begins there.
  size_t real_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return at_;
    const size_t whole = digits_end(at_, 10);
    if (whole == at_) return at_;
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') end = std::max(whole, digits_end(whole + 1, 10));
    if (end == whole + 1) end = whole;
    const bool has_fraction = end > whole;
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      if (const size_t exponent = digits_end(digits, 10); exponent > digits) return exponent;
    }
    return has_fraction ? end : at_;
  }

  bool number() {
    if (peek() < '0' || peek() > '9') return false;
    size_t end = real_end();
    const bool real = end > at_;
    if (!real) {
      const char letter = static_cast<char>(peek(1) | 0x20);
      const int base = peek() != '0' ? 10 : letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 1;
      const size_t first = at_ + 2 + (peek(2) == '_' ? 1 : 0);
      end = base == 10 || base == 1 ? digits_end(at_, base) : digits_end(first, base);
      // If no digit follows a prefix such as 0x, the token is a plain 0, and a name follows it.
      if (base != 10 && base != 1 && end <= first) end = at_ + 1;
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(end - at_);
    return true;
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && is_word(code_point_at(source_, end))) end += code_point_bytes(source_, end);
    const char32_t first = code_point_at(source_, at_);
    if (first != '_' && !is_alpha(first)) fail("expected a name, got " + std::string(rest().substr(0, end - at_)));
    if (end - at_ > kLongestName) fail(fmt::format("expected a name of at most {} bytes, got one of {}", kLongestName, end - at_));
    add(TokenKind::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void string() {
    const char quote = peek();
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("expected {} at the end of a string, got the end of the template", quote));
    std::string why;
    auto text = unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), why);
    if (!text) fail(why);
    add(TokenKind::string, std::move(*text));
    advance(end + 1 - at_);
  }

  void sign(std::string& open) {
    constexpr std::array<std::string_view, 26> kSigns = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view sign) { return sees(sign); });
    if (found == kSigns.end()) fail(fmt::format("expected an expression, got {}", rest().substr(0, code_point_bytes(source_, at_))));
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (found->size() == 1 && kOpen.find(found->front()) != kOpen.npos) open += found->front();
    if (const size_t kind = kClose.find(found->front()); kind != kClose.npos) {
      if (open.empty() || open.back() != kOpen[kind])
        fail(fmt::format("expected a closing bracket that matches an open one, got {}", *found));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(*found));
    advance(found->size());
  }

  const std::string source_;
  const std::string& file_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
};

}  // namespace

std::string Token::shown() const {
  switch (kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::print_begin:
      return "{{";
    case TokenKind::print_end:
      return "}}";
    case TokenKind::block_begin:
      return "{%";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "the end of the template";
    default:
      return "'" + text + "'";
  }
}

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  if (source.size() > kMostBytes)
    fail_at(file, 1, fmt::format("expected a template of at most {} bytes, got {}", kMostBytes, source.size()));
  return Lexer(source, file).tokens();
}

}  // namespace spillway::data::chat
