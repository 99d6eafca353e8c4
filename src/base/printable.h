// Text of unknown origin (names in files, file names, what a model wrote) on its way to a terminal or a log. A terminal obeys control
// bytes: they can set its title, clear it, hide lines or forge them. Pure functions: thread-safe.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

/// The text with control characters other than tab and line feed written out: "\x1b" those of ASCII, "\u009b" delete and those of Unicode
/// (U+007F to U+009F); likewise "\xff" a byte that is no UTF-8. JSON stays the same JSON.
std::string for_terminal(std::string_view text);

/// The same for a name that stands within a line: tabs and line feeds are escaped as well.
std::string in_one_line(std::string_view text);

}  // namespace spillway
