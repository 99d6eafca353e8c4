// Implements GPT-2's mapping of bytes to visible characters, by which any bytes can be written as text. Printable bytes
// of Latin-1 map to themselves; the other 68 bytes map to U+0100 and the characters after it, in order. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

/// Returns the character of a byte, as UTF-8.
std::string_view byte_character(char byte);
/// Returns the byte that a character stands for, or nothing if the character is none of the mapping's 256 characters.
std::optional<char> byte_of_character(char32_t code);
/// Returns the bytes that the characters of a valid UTF-8 text stand for. Returns nothing if one of the characters stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view text);

/// The regular expression by which GPT-2 splits text into words.
inline constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace spillway::data
