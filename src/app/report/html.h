// Words on a page: whatever comes from a file is text, never markup. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::app {

/// As text or as the value of an attribute; bytes that are no UTF-8, and control characters, become U+FFFD.
std::string escaped(std::string_view text);
/// The number as it was read, to its last bit, behind what is shown of it.
std::string exact(double value, std::string_view shown);

/// A table; the first row is its head, cells are markup. Columns after the first `words` ones are numbers.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t words = 1);

}  // namespace spillway::app
