// What stands between the quotes of a string in a template, and newlines of all kinds. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace spillway::data::chat {

/// "\r\n" and "\r" made "\n".
std::string normalize_newlines(std::string_view text);

/// Python's escapes resolved as Jinja does. Nothing, and `why`, for a broken one, a surrogate, and `\N{name}`.
std::optional<std::string> unescape(std::string_view text, std::string& why);

}  // namespace spillway::data::chat
