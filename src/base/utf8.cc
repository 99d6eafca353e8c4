#include "base/utf8.h"

#include <cstring>

namespace spillway {
namespace {

/// Describes the UTF-8 sequences that begin with a certain byte: their length and the
/// range of their second byte. A length of 0 means that no sequence begins with that byte.
struct Lead {
  int bytes = 0;
  unsigned second_from = 0x80, second_to = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {4};
}

}  // namespace

Utf8Unit utf8_unit(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.bytes == 0) return {};
  for (int i = 1; i < lead.bytes; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {0xFFFD, i, false, true};
    const auto byte = static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
    if (byte < (i == 1 ? lead.second_from : 0x80) || byte > (i == 1 ? lead.second_to : 0xBF)) return {0xFFFD, i, false, false};
  }
  size_t at = 0;
  return {next_code(bytes, at), lead.bytes, true, false};
}

bool is_ascii(std::string_view bytes) {
  unsigned char all = 0;
  for (const char c : bytes) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

bool is_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    u64 eight = 0;
    if (bytes.size() - at >= 8) {
      std::memcpy(&eight, bytes.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Unit unit = utf8_unit(bytes.substr(at));
    if (!unit.valid) return false;
    at += static_cast<size_t>(unit.bytes);
  }
  return true;
}

int unfinished_utf8(std::string_view bytes) {
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::string_view end = bytes.substr(bytes.size() - back);
    const Utf8Unit unit = utf8_unit(end);
    if (unit.unfinished && static_cast<size_t>(unit.bytes) == back) return unit.bytes;
  }
  return 0;
}

std::string replace_broken_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = utf8_unit(bytes.substr(at));
    text += unit.valid ? bytes.substr(at, static_cast<size_t>(unit.bytes)) : kReplacementText;
    at += static_cast<size_t>(unit.bytes);
  }
  return text;
}

void append_code(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::string utf8_of(char32_t code) {
  std::string text;
  append_code(text, code);
  return text;
}

}  // namespace spillway
