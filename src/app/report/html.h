// Formats text for an HTML page. Text that comes from a file is escaped, so that a browser never takes it for markup. All functions are
// pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::app {

/// Escapes text for use as content or as an attribute value. Control characters and bytes that are not valid UTF-8 become U+FFFD.
std::string escaped(std::string_view text);
/// Returns markup that shows the rounded text `shown` and carries the exact value as its data and tooltip.
std::string exact(double value, std::string_view shown);

/// Returns an HTML table. The first row is its head, and all cells are markup. The first `words` columns hold words, all others numbers.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t words = 1);

}  // namespace spillway::app
