// Decodes string literals of a template (the text between the quotes) and normalises newlines. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace spillway::data::chat {

/// Replaces "\r\n" and "\r" by "\n".
std::string normalize_newlines(std::string_view text);

/// Resolves Python's escape sequences as Jinja does. For an invalid escape,
/// a surrogate or `\N{name}`, returns nothing and sets `why` to the reason.
std::optional<std::string> unescape(std::string_view text, std::string& why);

}  // namespace spillway::data::chat
