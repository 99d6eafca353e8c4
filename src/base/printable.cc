#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace spillway {
namespace {

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

std::string escaped(std::string_view text, std::string_view allowed) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = utf8_unit(text);
    const std::string_view character = text.substr(0, unit.valid ? static_cast<size_t>(unit.bytes) : 1);
    if (!unit.valid || (is_control(character) && allowed.find(character) == allowed.npos)) {
      const auto last = static_cast<unsigned char>(character.back());
      out += character.size() == 2 || last == 0x7F ? fmt::format("\\u{:04x}", last) : fmt::format("\\x{:02x}", last);
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace

std::string for_terminal(std::string_view text) { return escaped(text, "\n\t"); }

std::string in_one_line(std::string_view text) { return escaped(text, ""); }

}  // namespace spillway
