#include "base/printable.h"

#include <fmt/format.h>

namespace spillway {
namespace {

// Bytes of the character of UTF-8 (RFC 3629) at the beginning of `text`; 0: there is none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool allowed = (first != 0xE0 || byte(1) >= 0xA0) && (first != 0xED || byte(1) < 0xA0);  // no long forms, no surrogates
    return allowed && continues(1) && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool allowed = (first != 0xF0 || byte(1) >= 0x90) && (first != 0xF4 || byte(1) < 0x90);
    return allowed && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

std::string escaped(std::string_view text, std::string_view allowed) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || (is_control(character) && allowed.find(character) == allowed.npos)) {
      const auto last = static_cast<unsigned char>(character.back());
      out += bytes == 2 || last == 0x7F ? fmt::format("\\u{:04x}", last) : fmt::format("\\x{:02x}", last);
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
