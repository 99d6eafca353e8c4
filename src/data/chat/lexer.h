// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks on: white space is already gone where a tag takes it, the
// template's last newline is dropped, comments are gone and raw blocks are text.
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
  std::string text;  // of a string, without quotes and escapes; of a number, without underscores
  bool is_sign(std::string_view wanted) const { return kind == TokenKind::sign && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
  /// For messages: "'endfor'", "end of print statement".
  std::string shown() const;
};

/// Ends with one token of kind `end`. Throws Error(data) with `file` and the line for what Jinja refuses, for more than 1 MiB, and for
/// names beyond kLongestName.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace spillway::data::chat
