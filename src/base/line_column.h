// Where in a text a byte stands, as editors count. Pure.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

/// "line 3, column 7" of the `nth` byte, which counts from 1 as the errors of JSON parsers do, and so do lines and columns.
std::string line_and_column(std::string_view text, size_t nth);

}  // namespace spillway
