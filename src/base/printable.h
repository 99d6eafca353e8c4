// Makes text of unknown origin (names in files, file names, model output) safe to print to a terminal or a log. Terminals obey control
// bytes, which can set the title, clear the screen, hide lines or forge them. Pure functions; thread-safe.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

/// Returns the text with control characters other than tab and line feed escaped: ASCII ones in the form "\x1b", delete and the Unicode
/// ones (U+007F to U+009F) in the form "\u009b". A byte that is not valid UTF-8 is escaped as "\xff". JSON text keeps its meaning.
std::string for_terminal(std::string_view text);

/// Escapes as for_terminal() does, and also tabs and line feeds. Use it for a name that is printed within a line.
std::string in_one_line(std::string_view text);

}  // namespace spillway
