#include "base/line_column.h"

#include <algorithm>

namespace spillway {

std::string line_and_column(std::string_view text, size_t nth) {
  const std::string_view before = text.substr(0, nth > 0 ? nth - 1 : 0);
  const size_t begin = before.rfind('\n');
  const size_t column = begin == before.npos ? before.size() + 1 : before.size() - begin;
  return "line " + std::to_string(std::ranges::count(before, '\n') + 1) + ", column " + std::to_string(column);
}

}  // namespace spillway
