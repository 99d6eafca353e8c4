// Splits a template into tokens, as Jinja does with trim_blocks and lstrip_blocks on. Comments, the
// template's last newline and white space that a tag removes are dropped. The content of raw blocks is text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::data::chat {

enum class TokenKind : u8 { data, print_begin, print_end, block_begin, block_end, name, string, integer, real, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // the token's text: of a string without its quotes and escapes, of a number without its underscores
  bool is_sign(std::string_view wanted) const { return kind == TokenKind::sign && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
  /// Describes the token for error messages, for example "'endfor'" or "end of print statement".
  std::string shown() const;
};

/// Returns the template's tokens; the last one is of kind `end`. Throws an Error(data) that names `file` and the line,
/// if Jinja would refuse the source, if the source is larger than 1 MiB, or if a name is longer than kLongestName.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace spillway::data::chat
