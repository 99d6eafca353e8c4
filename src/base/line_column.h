// Converts a byte position in a text to a line and a column, as text editors count them. Pure function.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

/// Returns "line 3, column 7" for the `nth` byte of `text`. Bytes count from 1, as in the errors of JSON parsers; so do lines and columns.
std::string line_and_column(std::string_view text, size_t nth);

}  // namespace spillway
