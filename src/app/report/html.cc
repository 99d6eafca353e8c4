#include "app/report/html.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::app {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Returns the length in bytes of the UTF-8 character at position `at`. Returns 0 if no valid character begins at `at` (RFC 3629).
size_t length_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t n) { return n < text.size() ? static_cast<unsigned char>(text[n]) : 0u; };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
  for (size_t n = 1; n < length; ++n) {
    if ((byte(at + n) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (size_t at = 0; at < text.size();) {
    const size_t length = length_at(text, at);
    const char c = text[at];
    if (length == 0 || c == 0x7f || (length == 1 && static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t')) {
      safe += kReplacement;
    } else if (length == 1 && (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')) {
      safe += fmt::format("&#{};", int{c});
    } else {
      safe += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return safe;
}

std::string exact(double value, std::string_view shown) {
  return fmt::format(R"(<data value="{0}" title="{0}">{1}</data>)", value, escaped(shown));
}

std::string table(const std::vector<std::vector<std::string>>& rows, size_t words) {
  std::string text = "<div class=\"wide\"><table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    text += r == 0 ? "<thead><tr>" : "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const char* cell = r == 0 ? "th scope=\"col\"" : c == 0 ? "th scope=\"row\"" : "td";
      text += fmt::format("<{}{}>{}</{}>", cell, c >= words ? " class=\"n\"" : "", rows[r][c], r == 0 || c == 0 ? "th" : "td");
    }
    text += r == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace spillway::app
