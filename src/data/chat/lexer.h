// Splits a template into tokens, as Jinja does with trim_blocks and lstrip_blocks on. White space that a tag removes, the template's last
// newline and comments are already gone; raw blocks are text.
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
  std::string text;  // a string without quotes and escapes; a number without underscores
  bool is_sign(std::string_view wanted) const { return kind == TokenKind::sign && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
  /// Describes the token for messages: "'endfor'", "end of print statement".
  std::string shown() const;
};

/// Returns the tokens; the last one is of kind `end`. Throws Error(data) with `file` and the line if Jinja would refuse the source, if it
/// is larger than 1 MiB, or if a name is longer than kLongestName.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace spillway::data::chat
