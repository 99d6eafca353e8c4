#include "data/tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace spillway::data {
namespace {

struct ByteTable {
  std::array<std::string, 256> character;
  std::array<int, 0x144> byte;  // maps each code point to the byte that it stands for, or to -1

  ByteTable() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned i = 0; i < 256; ++i) {
      const bool itself = (i >= '!' && i <= '~') || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
      const char32_t code = itself ? i : next++;
      character[i] = utf8_of(code);
      byte[code] = static_cast<int>(i);
    }
  }
};

const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

}  // namespace

std::string_view byte_character(char byte) { return byte_table().character[static_cast<unsigned char>(byte)]; }

std::optional<char> byte_of_character(char32_t code) {
  const auto& bytes = byte_table().byte;
  if (code >= bytes.size() || bytes[code] < 0) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(bytes[code]));
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const auto byte = byte_of_character(next_code(text, at));
    if (!byte) return std::nullopt;
    bytes += *byte;
  }
  return bytes;
}

}  // namespace spillway::data
